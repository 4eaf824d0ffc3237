package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func upCommand() *cobra.Command {
	var (
		data, name, listen, profile string
		verbose                     bool
		source                      sourceConfig
		store                       etcdConfig
		nets                        networkConfig
		machine                     machineFlags
	)
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run server and node in one process, in the foreground",
		Long: `Runs everything in one process: the store, the API, the hosted git repository,
the controllers, and this machine as a node. Ctrl-C ends it and leaves the
containers running; the next headway up adopts them.

In the data dir it writes
  kubeconfig   for kubectl, as administrator
  remote       the URL that a plain "git push" takes from this machine

With --repo the cluster follows a repository elsewhere instead of hosting one.
If no containerd runs on the machine, headway starts one of its own, which
outlives it.`,
		Example: `  headway up
  headway up --data-dir /srv/b --listen 127.0.0.1:7443          a second one beside it
  headway up --repo https://git.example.org/team/app.git --path deploy --netrc /etc/headway/netrc
  headway up --repo https://git.example.org/team/app.git --cluster-name staging     another cluster on the same repository
  headway up --repo git@git.example.org:team/app.git --ssh-key /etc/headway/key --known-hosts /etc/headway/known_hosts`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := dataDir(data)
			lock, err := dir.open()
			if err != nil {
				return err
			}
			defer lock.Close()
			profiles, err := serveProfiles(profile)
			if err != nil {
				return err
			}
			defer profiles.Close()
			log := newLog(verbose)
			keeper, err := keeperProgram(dir)
			if err != nil {
				return err
			}
			mc, err := machine.config(dir, keeper, nets, log)
			if err != nil {
				return err
			}
			metrics := prometheus.NewRegistry()
			mc.metrics = metrics
			return up(cmd.Context(), cmd.OutOrStdout(), clusterConfig{
				dir: dir, name: name, listen: listen, keeper: keeper, node: mc.node, source: source, etcd: store, nets: nets, metrics: metrics, log: log,
			}, mc)
		},
	}
	dataDirFlag(cmd, &data)
	clusterNameFlag(cmd, &name)
	listenFlag(cmd, &listen)
	logFlag(cmd, &verbose)
	source.flags(cmd)
	store.flags(cmd)
	nets.flags(cmd)
	machine.flags(cmd)
	profileFlag(cmd, &profile)
	return cmd
}

func listenFlag(cmd *cobra.Command, listen *string) {
	cmd.Flags().StringVar(listen, "listen", "127.0.0.1:6443", "address of the API; other machines need one that they reach")
}

// up runs both halves until ctx ends. They are brought up side by side, since
// neither needs the other to start.
func up(ctx context.Context, out io.Writer, cc clusterConfig, mc machineConfig) error {
	var (
		c     *cluster
		m     *machine
		start errgroup.Group
	)
	start.Go(func() (err error) { c, err = openCluster(ctx, cc); return err })
	start.Go(func() (err error) { m, err = openMachine(ctx, mc); return err })
	if err := start.Wait(); err != nil {
		if c != nil {
			err = errors.Join(err, c.close())
		}
		if m != nil {
			err = errors.Join(err, m.close())
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group errgroup.Group
	group.Go(func() error { defer cancel(); return c.run(ctx) })
	group.Go(func() error {
		defer cancel()
		return m.run(ctx, reachable(c.listener.Addr()), c.nodeCredentials(mc.node))
	})
	group.Go(func() error {
		select {
		case <-c.nodeReady:
			greet(out, c)
		case <-ctx.Done():
		}
		return nil
	})
	err := group.Wait()
	return errors.Join(ignoreEnd(err), m.close(), c.close())
}

// greet tells systemd that we serve, and a person what to do next.
func greet(out io.Writer, c *cluster) {
	if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
		c.log.Warn("systemd not told", "error", err)
	}
	dir := c.cfg.dir
	push := "git push \"$(cat " + dir.remote() + ")\" main"
	if c.hosted == nil {
		push = "git push to " + redacted(c.cfg.source.url) + " (" + c.cfg.source.fullRef() + ")"
	}
	fmt.Fprintf(out, "\nHeadway is ready.\n  deploy  %s\n  look    export KUBECONFIG=%s; kubectl get pods -A\n  data    %s\n", push, dir.kubeconfig(), string(dir))
}

// nodeName is this machine's name as a node: the host name in lower case.
func nodeName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("read the host name: %w: give --node-name", err)
	}
	return strings.ToLower(name), nil
}
