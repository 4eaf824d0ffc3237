package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"headway.dev/headway/syncer/git"
)

// access is a repository and the files of credentials that it is read with. Sources
// of the same access share one clone, and each fetch.
type access struct {
	url, netrc, sshKey, knownHosts string
	netrcMayBe                     bool
}

// real is the access with its files' own paths, so that links to one file are one
// access.
func (a access) real() access {
	for _, file := range []*string{&a.netrc, &a.sshKey, &a.knownHosts} {
		if path, err := filepath.EvalSymlinks(*file); err == nil {
			*file = path
		} // else it is not there yet, and its name stands for it
	}
	return a
}

// clone is the clone of a repository, and who serves it to those who read.
type clone struct {
	access access
	*git.Forge
	dir    string
	reader *git.Hosted
	users  int
	stop   func() // ends the reader and waits; nil: it does not run
}

// name is what the reader calls the clone.
func (c *clone) name() string { return filepath.Base(c.dir) }

// clones are those of this server.
type clones struct {
	cluster string
	dir     dataDir
	token   string // of those who read
	log     *slog.Logger

	mu  sync.Mutex
	all map[access]*clone
}

// use gives the clone of a repository, which it makes in dir when there is none.
func (c *clones) use(ctx context.Context, a access, dir string) (*clone, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.all[a.real()]; found != nil {
		found.users++
		return found, nil
	}
	repo, err := git.OpenForge(ctx, git.ForgeConfig{
		URL: a.url, Dir: dir, Cluster: c.cluster, Netrc: a.netrc, NetrcMayBe: a.netrcMayBe, SSHKey: a.sshKey, KnownHosts: a.knownHosts, Log: c.log,
	})
	if err != nil {
		return nil, err
	}
	out := &clone{access: a.real(), Forge: repo, dir: dir, users: 1, reader: git.OpenReader(repo, git.Config{Tokens: map[string]string{"git": c.token}, Log: c.log})}
	if c.all == nil {
		c.all = map[access]*clone{}
	}
	c.all[out.access] = out
	return out, nil
}

// folder is where the clone of a further source stands. It is named for what is in it,
// and the files that it is read with: clones are never mixed up.
func (c *clones) folder(a access) string {
	a = a.real()
	sum := sha256.Sum256([]byte(strings.Join([]string{a.url, a.netrc, a.sshKey, a.knownHosts}, "\x00")))
	return c.dir.path("git", "sources", hex.EncodeToString(sum[:8]))
}

// leave gives a clone back. What nobody uses is closed; it stays on the disk.
func (c *clones) leave(used *clone) {
	c.mu.Lock()
	used.users--
	unused := used.users == 0
	if unused {
		delete(c.all, used.access)
	}
	c.mu.Unlock()
	if !unused {
		return
	}
	if used.stop != nil {
		used.stop()
	}
	used.Close()
}

// serve has the readers of all clones run until ctx ends; those that run already go on.
func (c *clones) serve(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range c.all {
		if each.stop != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := each.reader.Run(ctx); err != nil {
				c.log.Error("a clone is not served any more", "error", err)
			}
		}()
		each.stop = func() { cancel(); <-ended }
	}
}

// end stops the readers of all clones, and waits for them.
func (c *clones) end() {
	c.mu.Lock()
	var stops []func()
	for _, each := range c.all {
		if each.stop != nil {
			stops = append(stops, each.stop)
		}
	}
	c.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}

// noClone says of a source why it cannot be followed on this server.
func noClone(name string, err error) error {
	return fmt.Errorf("source %s cannot be followed: %w", name, err)
}
