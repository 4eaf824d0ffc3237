package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"headway.dev/headway/api"
)

// gitHandler is the hosted repository under a path prefix. Of a source on a forge it
// is our clone, to read the live ref and the receipts from: /NAME.git of a further one.
func (c *cluster) gitHandler(prefix string) http.Handler {
	return http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repository, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		name, ok := strings.CutSuffix(repository, ".git")
		f, err := c.sources.get(name)
		if !ok || err != nil || !f.spec.Further() {
			if f, err = c.sources.get(api.MainSource); err != nil { // it is the first there is
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		if f.clone == nil {
			c.hosted.ServeHTTP(w, r)
			return
		}
		if f.spec.Further() {
			r = r.Clone(r.Context())
			r.URL.Path = "/" + f.clone.name() + "/" + rest
		}
		f.clone.reader.ServeHTTP(w, r)
	}))
}

// listenForGit opens the loopback listener that a plain git push reaches, on the
// port of the last time if it is free, else beside the API's, and writes its URL
// with the token to the file remote.
func (c *cluster) listenForGit(api net.Addr) error {
	for _, port := range c.gitPorts(api) {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			c.git = l
			break
		}
	}
	if c.git == nil {
		return errors.New("listen for git on loopback: no port is free")
	}
	if c.hosted == nil {
		// Nothing to push to: a file from an earlier life would mislead.
		if err := os.Remove(c.cfg.dir.remote()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	remote := url.URL{Scheme: "http", Host: c.git.Addr().String(), Path: "/main.git", User: url.UserPassword("git", c.token)}
	return replaceFile(c.cfg.dir.remote(), []byte(remote.String()+"\n"), 0o600)
}

func (c *cluster) gitPorts(api net.Addr) []int {
	var ports []int
	if last, err := readLine(c.cfg.dir.remote()); err == nil {
		if u, err := url.Parse(last); err == nil {
			if p, err := strconv.Atoi(u.Port()); err == nil {
				ports = append(ports, p)
			}
		}
	}
	if tcp, ok := api.(*net.TCPAddr); ok && tcp.Port < 65535 {
		ports = append(ports, tcp.Port+1)
	}
	return append(ports, 0)
}

// serveGit serves the loopback listener until ctx ends. There are no write
// timeouts: a push prints its rollout for as long as that takes.
func (c *cluster) serveGit(ctx context.Context) error {
	s := &http.Server{Handler: c.gitHandler(""), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	served := make(chan error, 1)
	go func() { served <- s.Serve(c.git) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if err := s.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
		if err := s.Close(); err != nil {
			return err
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pushToken returns the token that git signs in with, made at the first start.
func pushToken(dir dataDir) (string, error) {
	token, err := readLine(dir.pushToken())
	if err == nil && token != "" {
		return token, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the push token: %w", err)
	}
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	token = hex.EncodeToString(raw)
	return token, replaceFile(dir.pushToken(), []byte(token+"\n"), 0o600)
}

// redacted is a URL without what may be secret in it.
func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.User == nil {
		return raw
	}
	u.User = nil
	return u.String()
}
