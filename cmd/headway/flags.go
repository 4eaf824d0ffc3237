package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"headway.dev/headway/admission"
	"headway.dev/headway/server"
	"headway.dev/headway/store/etcd"
	"headway.dev/headway/syncer/forge"
	"headway.dev/headway/syncer/git"
)

func dataDirFlag(cmd *cobra.Command, dir *string) {
	*dir = defaultDataDir
	cmd.Flags().Var((*absolutePath)(dir), "data-dir", "where everything that must survive lives")
}

// absolutePath is a path as a flag's value. It is made absolute at once: it becomes
// part of names and of what other processes are given, who stand elsewhere.
type absolutePath string

func (p *absolutePath) String() string { return string(*p) }
func (p *absolutePath) Type() string   { return "string" }

func (p *absolutePath) Set(text string) error {
	if text == "" {
		return errors.New("it is empty: name a folder")
	}
	path, err := filepath.Abs(text)
	*p = absolutePath(path)
	return err
}

// sourceFlag is the source that a client verb is about; "" is the main one.
type sourceFlag string

func (s *sourceFlag) flag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(s), "source", "", "a further source, by its name in .headway.yaml (default: the main one)")
}

// to adds it to a question.
func (s sourceFlag) to(query url.Values) url.Values {
	if s != "" {
		query.Set("source", string(s))
	}
	return query
}

// sourceConfig says which repository the cluster follows; an empty url means the
// one that Headway hosts.
type sourceConfig struct {
	url, ref, path string
	netrc          string
	sshKey         string
	knownHosts     string
	credentials    string // folder of the further sources' files; "": below the data dir
	poll           time.Duration
	forge          forgeConfig
}

// forgeConfig says what passes between the cluster and the forge beside git:
// commit statuses, with a token, and webhooks, with a secret.
type forgeConfig struct {
	kind, api, token, secret string
}

func (f *forgeConfig) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "forge", "", "what hosts --repo: github, gitlab, gitea or forgejo (default: told by the host's name, or asked)")
	flags.StringVar(&f.token, "forge-token", "", "file with a token; with it each commit of --repo gets a status on the forge")
	flags.StringVar(&f.api, "forge-api", "", "base URL of the forge's API, where it is not the usual one; with --forge")
	flags.StringVar(&f.secret, "webhook-secret", "", "file with a secret per line; with it the forge's webhooks are heard at /webhook")
}

// check refuses what has no meaning without a forge, each flag by its name.
func (f *forgeConfig) check(url string) error {
	if _, err := forge.ParseKind(f.kind); err != nil {
		return fmt.Errorf("--forge: %w", err)
	}
	for _, flag := range []struct{ name, value, why string }{
		{"--forge-token", f.token, "a hosted repository has no forge that shows commit statuses; headway log shows them"},
		{"--forge", f.kind, "the hosted repository is on no forge"},
		{"--forge-api", f.api, "the hosted repository is on no forge"},
	} {
		if url == "" && flag.value != "" {
			return fmt.Errorf("%s is for --repo: %s", flag.name, flag.why)
		}
	}
	if f.token == "" && (f.kind != "" || f.api != "") {
		return errors.New("--forge and --forge-api say where commit statuses go: give --forge-token too")
	}
	return nil
}

func (s *sourceConfig) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.url, "repo", "", "follow this repository (https, ssh, git@host:path or a local path) instead of hosting one")
	f.StringVar(&s.ref, "ref", "", "branch or full ref to follow (default main)")
	f.StringVar(&s.path, "path", "", "folder of the repository that holds the manifests (default its root)")
	f.StringVar(&s.netrc, "netrc", "", "file with the forge's login and password or token, in netrc format")
	f.StringVar(&s.sshKey, "ssh-key", "", "file with the private key for a repository behind ssh, without a passphrase")
	f.StringVar(&s.knownHosts, "known-hosts", "", "file with the host keys for a repository behind ssh, as ssh has it; no other host is trusted")
	f.DurationVar(&s.poll, "poll", 10*time.Second, "how often to look for new commits with --repo, unless .headway.yaml says")
	f.StringVar(&s.credentials, "credentials-dir", "", "folder with a folder per further source, for its netrc, ssh-key, known-hosts and forge-token (default DATA-DIR/credentials)")
	s.forge.flags(cmd)
}

func (s *sourceConfig) check() error {
	if s.url == "" && s.netrc != "" {
		return errors.New("--netrc is for --repo")
	}
	switch ssh := git.BehindSSH(s.url); {
	case !ssh && (s.sshKey != "" || s.knownHosts != ""):
		return errors.New("--ssh-key and --known-hosts are for a --repo behind ssh (ssh://git@HOST/PATH or git@HOST:PATH)")
	case ssh && s.sshKey == "":
		return errors.New("--repo is behind ssh: give --ssh-key FILE, made with ssh-keygen -t ed25519 -N '' -f FILE, and make FILE.pub a deploy key of the repository")
	case ssh && s.knownHosts == "":
		return errors.New("--repo is behind ssh: give --known-hosts FILE with the host's keys: what ssh-keyscan HOST prints, once its fingerprints (ssh-keygen -lf FILE) are those that the host publishes")
	}
	if s.poll < time.Second {
		return fmt.Errorf("--poll %s: at least 1s", s.poll)
	}
	return s.forge.check(s.url)
}

// fullRef is the ref in full: a bare name is a branch.
func (s *sourceConfig) fullRef() string {
	switch {
	case s.ref == "":
		return "refs/heads/main"
	case strings.HasPrefix(s.ref, "refs/"):
		return s.ref
	}
	return "refs/heads/" + s.ref
}

// etcdConfig says where the store is: a member in this process, or outside
// endpoints.
type etcdConfig struct {
	endpoints         []string
	cert, key, caFile string
}

func (e *etcdConfig) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&e.endpoints, "etcd-endpoints", nil, "use this outside etcd instead of a member in this process (https://host:port, …)")
	f.StringVar(&e.cert, "etcd-cert", "", "client certificate for --etcd-endpoints")
	f.StringVar(&e.key, "etcd-key", "", "key of --etcd-cert")
	f.StringVar(&e.caFile, "etcd-ca", "", "authority of the outside etcd")
}

func (e etcdConfig) open(ctx context.Context, dir dataDir, onUsage func(etcd.Usage), log *slog.Logger) (*etcd.Etcd, error) {
	log = log.With("component", "etcd")
	if len(e.endpoints) == 0 {
		return etcd.Start(ctx, etcd.Config{Dir: dir.etcd(), Log: log, OnUsage: onUsage})
	}
	config, err := e.tls()
	if err != nil {
		return nil, err
	}
	return etcd.Dial(ctx, e.endpoints, config, log)
}

func (e etcdConfig) tls() (*tls.Config, error) {
	if e.caFile == "" && e.cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.caFile != "" {
		data, err := os.ReadFile(e.caFile)
		if err != nil {
			return nil, fmt.Errorf("--etcd-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("--etcd-ca: %s holds no certificate", e.caFile)
		}
	}
	if e.cert != "" {
		pair, err := tls.LoadX509KeyPair(e.cert, e.key)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cert: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// networkConfig says which addresses and names the cluster gives out.
type networkConfig struct{ services, domain string }

func defaultNetwork() networkConfig {
	return networkConfig{services: admission.DefaultServiceCIDR, domain: "cluster.local"}
}

func (n *networkConfig) flags(cmd *cobra.Command) {
	d := defaultNetwork()
	cmd.Flags().StringVar(&n.services, "service-cidr", d.services, "range that the cluster IPs of Services come from; the same on every server and node")
	cmd.Flags().StringVar(&n.domain, "cluster-domain", d.domain, "domain that the Services' names end with; the same on every node")
}

// logFlag adds -v.
func logFlag(cmd *cobra.Command, verbose *bool) {
	cmd.Flags().BoolVarP(verbose, "verbose", "v", false, "also log what is only of interest to a developer")
}

// newLog logs to standard error, as text for a person; systemd and journald keep
// the lines.
func newLog(verbose bool) *slog.Logger {
	level := slog.LevelInfo
	if verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	server.RouteKlog(log)
	return log
}
