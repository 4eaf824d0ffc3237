package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"
)

func agentCommand() *cobra.Command {
	var (
		data, server, token string
		verbose             bool
		nets                networkConfig
		flags               machineFlags
	)
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this machine as a node of a server elsewhere",
		Long: `Runs the pods that a server gives to this machine. The machine needs no open
port: the agent dials the server. The first time it needs a token, which headway
token prints on the server; with it the machine gets a certificate for a key that
never leaves it.`,
		Example: "  headway agent --server https://10.0.0.1:6443 --token 4f7k…",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := dataDir(data)
			lock, err := dir.open()
			if err != nil {
				return err
			}
			defer lock.Close()
			keeper, err := keeperProgram(dir)
			if err != nil {
				return err
			}
			address, err := serverAddress(server)
			if err != nil {
				return err
			}
			config, err := flags.config(dir, keeper, nets, newLog(verbose))
			if err != nil {
				return err
			}
			if err := join(cmd.Context(), dir, address, token, config.node); err != nil {
				return err
			}
			creds, err := joinedCredentials(dir)
			if err != nil {
				return err
			}
			return runAgent(cmd.Context(), config, address, creds)
		},
	}
	dataDirFlag(cmd, &data)
	logFlag(cmd, &verbose)
	nets.flags(cmd)
	flags.flags(cmd)
	cmd.Flags().StringVar(&server, "server", "", "the server's API, https://host:port")
	cmd.Flags().StringVar(&token, "token", "", "join token, needed the first time")
	if err := cmd.MarkFlagRequired("server"); err != nil {
		panic(err) // the flag is defined two lines above
	}
	return cmd
}

func runAgent(ctx context.Context, config machineConfig, address string, creds credentials.TransportCredentials) error {
	m, err := openMachine(ctx, config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var renewing sync.WaitGroup
	renewing.Go(func() { keepRenewed(ctx, config.dir, address, config.node, creds, config.log) })
	err = errors.Join(ignoreEnd(m.run(ctx, address, creds)), m.close())
	cancel()
	renewing.Wait()
	return err
}

// serverAddress is host:port of --server.
func serverAddress(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("--server %q: give https://host:port", server)
	}
	if u.Port() == "" {
		return u.Hostname() + ":6443", nil
	}
	return u.Host, nil
}
