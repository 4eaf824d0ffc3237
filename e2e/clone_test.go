package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// git runs git in the working clone, which the first call makes.
func (c *cluster) git(args ...string) string {
	c.t.Helper()
	out, err := c.tryGit(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (c *cluster) tryGit(args ...string) (string, error) {
	if _, err := os.Stat(c.work); err != nil {
		if _, err := c.run("", "git", "init", "--quiet", "--initial-branch=main", c.work); err != nil {
			return "", err
		}
	}
	return c.run(c.work, "git", args...)
}

// write puts files into the working clone; an empty content removes one.
func (c *cluster) write(files map[string]string) {
	c.t.Helper()
	c.git("status")
	for name, content := range files {
		path := filepath.Join(c.work, name)
		if content == "" {
			if err := os.Remove(path); err != nil {
				c.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			c.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			c.t.Fatal(err)
		}
	}
}

// commit commits everything in the working clone and returns the hash.
func (c *cluster) commit(message string) string {
	c.t.Helper()
	c.git("add", "-A")
	c.git("commit", "--quiet", "--allow-empty", "-m", message)
	return c.git("rev-parse", "HEAD")
}

// remote is the URL that the cluster wrote for pushing.
func (c *cluster) remote() string {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.data(), "remote"))
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// push pushes main and returns what git printed.
func (c *cluster) push(args ...string) (string, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", c.work, "push", c.remote(), "main"}, args...)...)
	cmd.WaitDelay = 10 * time.Second // a child of git may keep the pipe open
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// deploy writes, commits and pushes, and waits until the commit is applied and
// healthy.
func (c *cluster) deploy(message string, files map[string]string) (commit, printed string) {
	c.t.Helper()
	c.write(files)
	commit = c.commit(message)
	printed, err := c.push()
	if err != nil {
		c.t.Fatalf("push: %v\n%s", err, printed)
	}
	if out, err := c.headway("status", commit, "--wait", "--timeout", patience.String()); err != nil {
		c.t.Fatalf("the commit did not become healthy: %v\n%s\npush printed:\n%s", err, out, printed)
	}
	return commit, printed
}
