package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

func remoteCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "remote",
		Short: "Print the URLs to push to",
		Long: `Prints where to push: from this machine, and from other machines over https.
When the cluster follows a forge: where to fetch what it writes back.
The https address is that of --listen; give headway up one that they reach.
The URLs hold a token that lets its holder deploy: treat them like a password.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := dataDir(data)
			local, err := readLine(dir.remote())
			if errors.Is(err, fs.ErrNotExist) {
				return printReadRemote(cmd.OutOrStdout(), dir)
			}
			if err != nil {
				return err
			}
			near, err := url.Parse(local)
			if err != nil {
				return fmt.Errorf("read %s: it holds no URL", dir.remote())
			}
			far, err := farRemote(dir, near.User, "main.git")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), `From this machine:
  git remote add headway %s

From another machine, copy %s there as headway-ca.crt:
  git remote add headway %s
  git config http.%s.sslCAInfo /path/to/headway-ca.crt
`, local, dir.authority(), far.String(), "https://"+far.Host)
			return err
		},
	}
	dataDirFlag(cmd, &data)
	return cmd
}

// printReadRemote says where the live ref and the receipts of a cluster that follows
// a forge can be fetched, also when they may not be pushed there.
func printReadRemote(out io.Writer, dir dataDir) error {
	token, err := readLine(dir.pushToken())
	if _, there := os.Stat(dir.forge()); err != nil || there != nil {
		return fmt.Errorf("%s is not there: headway up has not run with this data dir", dir.remote())
	}
	far, err := farRemote(dir, url.UserPassword("git", token), filepath.Base(dir.forge()))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `This cluster follows a repository elsewhere: push there. What the cluster writes
back can be fetched from here; copy %s as headway-ca.crt:
  git remote add headway %s
  git config http.%s.sslCAInfo /path/to/headway-ca.crt
  git fetch headway 'refs/heads/headway/*:refs/remotes/headway/*' 'refs/notes/*:refs/notes/*'
`, dir.authority(), far, "https://"+far.Host)
	return err
}

// farRemote is the https URL of a repository that this server serves.
func farRemote(dir dataDir, user *url.Userinfo, name string) (*url.URL, error) {
	data, err := os.ReadFile(dir.kubeconfig())
	if err != nil {
		return nil, err
	}
	var config clientcmd.Config
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("read %s: %w", dir.kubeconfig(), err)
	}
	if len(config.Clusters) != 1 {
		return nil, fmt.Errorf("%s does not name one cluster", dir.kubeconfig())
	}
	far, err := url.Parse(config.Clusters[0].Cluster.Server)
	if err != nil {
		return nil, err
	}
	far.User, far.Path = user, "/git/"+name
	return far, nil
}
