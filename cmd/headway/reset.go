package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/keeper"
)

func resetCommand() *cobra.Command {
	var (
		data  string
		yes   bool
		all   bool
		flags machineFlags
	)
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Take away everything that Headway made on this machine",
		Long: `Ends every pod of this data dir's cluster on this machine, and takes away its
containers, images, network, mounts, helper processes and the data dir itself.
Nothing of another data dir is touched, nor what is in this one and not Headway's.
Headway must not be running.

The data of persistent volumes stays where it is, unless --volumes is given; nobody
knows then which of it was whose.

This cannot be undone. Your repository is not touched; keep a clone of it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := dataDir(data)
			if err := dir.check(); err != nil {
				return err
			}
			lock, err := dir.open()
			if err != nil {
				return err
			}
			defer lock.Close()
			if !yes && !confirmed(cmd.InOrStdin(), cmd.OutOrStdout(), dir, all) {
				return errors.New("nothing was changed")
			}
			program, err := keeperProgram(dir)
			if err != nil {
				return err
			}
			flags.maxPods = 1 // no pod comes to it
			config, err := flags.config(dir, program, defaultNetwork(), newLog(false))
			if err != nil {
				return err
			}
			left, err := reset(cmd.Context(), config, all)
			if err != nil {
				return err
			}
			gone, kept := fmt.Sprintf("Gone: %s and everything it made on this machine.", string(dir)), ""
			if _, err := os.Stat(dir.persistent()); err == nil {
				kept = fmt.Sprintf(" Kept: the data of persistent volumes, in %s. Remove it with rm -r when nobody misses it.", dir.persistent())
			}
			if len(left) > 0 {
				kept += " Left, since Headway did not put it there: " + api.Printable(strings.Join(left, ", "))
			}
			if kept != "" {
				gone = fmt.Sprintf("Gone: everything that %s made on this machine.", string(dir))
			}
			fmt.Fprintln(cmd.OutOrStdout(), gone+kept)
			return nil
		},
	}
	dataDirFlag(cmd, &data)
	cmd.Flags().StringVar(&flags.socket, "containerd", "", "socket of containerd, as given to headway up")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&all, "volumes", false, "take away the data of persistent volumes, too")
	return cmd
}

func confirmed(in io.Reader, out io.Writer, dir dataDir, all bool) bool {
	but := " but for the data of its persistent volumes"
	if all {
		but = " WITH the data of its persistent volumes"
	}
	fmt.Fprintf(out, "This ends every pod of %s and deletes it,%s. Type its path to go on: ", string(dir), but)
	line, err := bufio.NewReader(in).ReadString('\n')
	return err == nil && strings.TrimSpace(line) == string(dir)
}

// reset undoes what openMachine and its pods made, the last thing first. It may
// be run again after it was cut off: the data dir goes last. What is in that and not
// of headway stays, and is returned. The data of persistent volumes stays, too, unless
// all is to go.
func reset(ctx context.Context, cfg machineConfig, all bool) (left []string, err error) {
	instance, err := cfg.dir.instance()
	if err != nil {
		return nil, err
	}
	daemon, err := openEngine(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	runtime, _, pods, err := openRuntime(ctx, cfg)
	if err != nil {
		return nil, err
	}
	err = runtime.Destroy(ctx)
	if err = errors.Join(err, runtime.Close()); err != nil {
		return nil, err
	}
	if err := removeTraffic(ctx, cfg); err != nil {
		return nil, err
	}
	if err := pods.Destroy(ctx); err != nil {
		return nil, err
	}
	if client, err := keeper.Dial(ctx, cfg.dir.keeper()); err == nil {
		if err := client.Stop(ctx); err != nil {
			return nil, err
		}
	}
	if daemon != nil {
		if err := daemon.Destroy(); err != nil {
			return nil, err
		}
	}
	volumes, err := openVolumes(cfg.dir)
	if err != nil {
		return nil, err
	}
	if err := volumes.Destroy(ctx); err != nil {
		return nil, err
	}
	if all {
		if err := volumes.DestroyPersistent(ctx); err != nil {
			return nil, err
		}
	}
	memory := filepath.Join("/run", instance)
	if err := unix.Unmount(filepath.Join(memory, "secrets"), 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("unmount the folder for secrets: %w", err)
	}
	if err := os.RemoveAll(memory); err != nil {
		return nil, err
	}
	return cfg.dir.remove()
}
