package main

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
)

func serverCommand() *cobra.Command {
	var (
		data, name, listen string
		verbose            bool
		source             sourceConfig
		store              etcdConfig
		nets               networkConfig
	)
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server without a node on this machine",
		Long: `Runs the server's half of headway up: the store, the API, the hosted git
repository and the controllers. Machines that run headway agent are its nodes.`,
		Example: "  headway server --listen 0.0.0.0:6443",
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
			c, err := openCluster(cmd.Context(), clusterConfig{dir: dir, name: name, listen: listen, keeper: keeper, source: source, etcd: store, nets: nets, metrics: prometheus.NewRegistry(), log: newLog(verbose)})
			if err != nil {
				return err
			}
			greet(cmd.OutOrStdout(), c)
			return errors.Join(ignoreEnd(c.run(cmd.Context())), c.close())
		},
	}
	dataDirFlag(cmd, &data)
	clusterNameFlag(cmd, &name)
	listenFlag(cmd, &listen)
	logFlag(cmd, &verbose)
	source.flags(cmd)
	store.flags(cmd)
	nets.flags(cmd)
	return cmd
}
