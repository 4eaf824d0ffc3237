package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	template "headway.dev/headway/repo-template"
)

func initCommand() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make a repository to start from, committed on branch main",
		Long: `Makes DIR a git repository with a small web page, a Job and a CronJob in it,
committed on branch main. If this machine runs headway up, its hosted repository
becomes the remote "origin", so that a plain "git push" deploys.

DIR must not exist, or be empty.`,
		Example: "  headway init ~/app && cd ~/app && git push",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := initRepository(args[0], dataDir(data))
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Made %s, committed on branch main.\n", args[0])
			if remote {
				fmt.Fprintf(cmd.OutOrStdout(), "Deploy it: git -C %s push\n", args[0])
			} else {
				fmt.Fprintf(cmd.OutOrStdout(), "Deploy it: git -C %s push \"$(cat %s)\" main   (once headway up runs)\n", args[0], dataDir(data).remote())
			}
			return nil
		},
	}
	dataDirFlag(cmd, &data)
	return cmd
}

// initRepository writes the template into dir and commits it; remote says that
// origin was set.
func initRepository(dir string, data dataDir) (remote bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if len(entries) > 0 {
		return false, fmt.Errorf("%s is not empty: give the name of a new directory", dir)
	}
	err = fs.WalkDir(template.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, path)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := template.Files.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o644)
	})
	if err != nil {
		return false, fmt.Errorf("write the template: %w", err)
	}
	steps := [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "."},
		append(author(dir), "commit", "--quiet", "-m", "Start from Headway's template"),
	}
	url, err := readLine(data.remote())
	if err == nil {
		steps = append(steps,
			[]string{"remote", "add", "origin", url},
			[]string{"config", "branch.main.remote", "origin"},
			[]string{"config", "branch.main.merge", "refs/heads/main"})
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return false, err
	}
	for _, args := range steps {
		if err := runGit(dir, args...); err != nil {
			return false, err
		}
	}
	return url != "", nil
}

// author gives git a name to commit with where the user has set none.
func author(dir string) []string {
	if exec.Command("git", "-C", dir, "config", "user.email").Run() == nil {
		return nil
	}
	return []string{"-c", "user.name=headway init", "-c", "user.email=headway@localhost"}
}

func runGit(dir string, args ...string) error {
	out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
