package keeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds a start, a takeover included.
const startTimeout = takeoverTimeout + 10*time.Second

// Start returns a client of the keeper of dir, started detached from us when
// none runs. One that another binary runs is replaced: the new one takes over.
func Start(ctx context.Context, binary, dir string) (*Client, error) {
	build, err := buildOf(binary)
	if err != nil {
		return nil, err
	}
	c := &Client{dir: dir, binary: binary}
	switch id, err := c.Hello(ctx); {
	case err == nil && id.Build == build:
		return c, nil
	case err != nil && !gone(err):
		return nil, err
	}
	return c, c.start(ctx)
}

// start runs the binary. The started process is not the keeper but its parent,
// which ends when the keeper serves: so the keeper is nobody's child, least of
// all ours.
func (c *Client) start(ctx context.Context) error {
	build, err := buildOf(c.binary)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.binary, "start", "--dir", c.dir, "--build", build)
	cmd.Dir = "/"
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start keeper %s: %w: %s", c.binary, err, strings.TrimSpace(out.String()))
	}
	id, err := c.Hello(ctx)
	if err != nil {
		return err
	}
	if id.Build != build {
		return fmt.Errorf("start keeper %s: build %s answers instead of %s", c.binary, id.Build, build)
	}
	return nil
}

// buildOf identifies a binary by its content.
func buildOf(binary string) (string, error) {
	f, err := os.Open(binary)
	if err != nil {
		return "", fmt.Errorf("find keeper binary: %w", err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", errors.Join(fmt.Errorf("read keeper binary: %w", err), f.Close())
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), f.Close()
}

// maxOwnLog is where the keeper's own messages begin anew.
const maxOwnLog = 1 << 20

// Detach starts `self run` in a session of its own and returns when it serves,
// which it says by closing the descriptor 3 after writing to it.
func Detach(self, dir, build string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make keeper directory: %w", err)
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	path := filepath.Join(dir, "keeper.log")
	if info, err := os.Stat(path); err == nil && info.Size() > maxOwnLog {
		flags |= os.O_TRUNC
	}
	log, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return fmt.Errorf("open keeper's own log: %w", err)
	}
	defer log.Close()
	ready, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer ready.Close()
	cmd := exec.Command(self, "run", "--dir", dir, "--build", build, "--ready-fd", "3")
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("start keeper: %w", err), tell.Close())
	}
	if err := tell.Close(); err != nil {
		return err
	}
	said, err := io.ReadAll(io.LimitReader(ready, 16))
	if err != nil {
		return fmt.Errorf("wait for keeper: %w", err)
	}
	if len(said) == 0 {
		err := cmd.Wait()
		return fmt.Errorf("keeper ended at once (%v), see %s", err, path)
	}
	return cmd.Process.Release()
}
