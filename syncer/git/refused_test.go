package git

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/internal/loopback"
)

// The forge moves between its list of refs and our push.
func TestForgePushLate(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := w.commit("a", "1")
	bare := filepath.Join(t.TempDir(), "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	theirs := &work{t: t, dir: bare}
	f := openForge(t, ForgeConfig{URL: bare})
	if _, err := f.Fetch(ctx, "main", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteLive(ctx, liveOf("", head), nil); err != nil {
		t.Fatal(err)
	}
	err := f.Push(ctx, func(context.Context) error {
		theirs.git("update-ref", "refs/heads/headway/main/live", head)
		_, err := f.Fetch(ctx, "main", 0) // which waits for no push
		return err
	})
	if !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), "refs/heads/headway/main/live: the forge refuses it: ") {
		t.Errorf("%v", err)
	}
	if got := theirs.git("rev-parse", "headway/main/live"); got != head {
		t.Errorf("overwritten by %s", got)
	}
	// What it was the forge need not say: the next one sees the move.
	if err := f.Push(ctx, nil); !errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), head) {
		t.Errorf("the next push: %v", err)
	}
}

// A forge's own rule may use git's words for a ref that has moved.
func TestForgeRefusalIsNoMove(t *testing.T) {
	for _, status := range []string{"non-fast-forward", "fetch first", "failed to update ref", "stale info", "protected branch: expected a review"} {
		err := refusal(edit{ref: "refs/heads/headway/main/live"}, status, "remote: rule 7\nask ann")
		if errors.Is(err, ErrMoved) || !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), status+": remote: rule 7 ask ann") {
			t.Errorf("%s: %v", status, err)
		}
	}
}

// A push holds at most so much; what is too large is not sent.
func TestForgePushBounded(t *testing.T) {
	ctx := context.Background()
	w := newWork(t)
	head := w.commit("a", "1")
	root := t.TempDir()
	bare := filepath.Join(root, "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	url, _ := backend(t, root)
	if f := openForge(t, ForgeConfig{URL: url}); f.config.MaxPush != 64<<20 {
		t.Errorf("over http %d bytes are held in memory", f.config.MaxPush)
	}
	for at, hint := range map[string]string{url: "over ssh", bare: ""} {
		f := openForge(t, ForgeConfig{URL: at, MaxPush: 300})
		if _, err := f.Fetch(ctx, "main", 0); err != nil {
			t.Fatal(err)
		}
		live, err := f.WriteLive(ctx, liveOf("", head), nil)
		if err != nil {
			t.Fatal(err)
		}
		content := make([]byte, 1000)
		if _, err := rand.Read(content); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteLive(ctx, liveOf(live, head, Edit{Path: "a", Content: content}), nil); err != nil {
			t.Fatal(err)
		}
		ready := func(context.Context) error { t.Error("sent all the same"); return nil }
		if err := f.Push(ctx, ready); err == nil || !strings.Contains(err.Error(), "more than 300 bytes") || !strings.Contains(err.Error(), hint) {
			t.Errorf("%v", err)
		}
		if left, err := filepath.Glob(filepath.Join(f.config.Dir, "push-*")); err != nil || len(left) > 0 {
			t.Errorf("left %q: %v", left, err)
		}
	}
}

func TestForgePushErrors(t *testing.T) {
	ctx := context.Background()
	s := startSSH(t)
	w := newWork(t)
	head := w.commit("a", "1")
	bare := filepath.Join(s.root, "repo.git")
	w.git("clone", "-q", "--bare", ".", bare)
	url, _ := backend(t, s.root)
	closed := loopback.Reserve(t, 1)
	known := s.known(s.line(s.hostKey.PublicKey()))
	foreign := filepath.Join(t.TempDir(), "foreign.git")
	w.git("clone", "-q", "--bare", ".", foreign)
	secret := "wr0ng-secret"
	for name, c := range map[string]struct {
		config ForgeConfig
		want   string
		class  error
	}{
		"no token":      {ForgeConfig{URL: strings.Replace(url, "writer:"+token+"@", "", 1)}, "authentication failed", ErrNotAllowed},
		"wrong token":   {ForgeConfig{URL: strings.Replace(url, token, secret, 1)}, "authentication failed", ErrNotAllowed},
		"may only read": {ForgeConfig{URL: strings.Replace(url, "writer", "reader", 1)}, "may not write to this repository", ErrNotAllowed},
		"read-only key": {ForgeConfig{URL: "ssh://" + s.address + "/repo.git", SSHKey: s.reader, KnownHosts: known}, "marked as read only", ErrNotAllowed},
		"unreachable":   {ForgeConfig{URL: "http://x:" + secret + "@" + closed + "/a.git"}, "unreachable", ErrUnreachable},
		"silent":        {ForgeConfig{URL: silent(t), Patience: 50 * time.Millisecond}, "nothing came", ErrUnreachable},
		"no repository": {ForgeConfig{URL: strings.Replace(url, "repo.git", "none.git", 1)}, "no such repository", ErrNotFound},
		"foreign":       {ForgeConfig{URL: foreign}, "dubious ownership", ErrNotAllowed},
	} {
		if name == "foreign" && os.Getuid() != 0 {
			continue // only root can make a repository of somebody else
		}
		t.Run(name, func(t *testing.T) {
			f := openForge(t, c.config)
			ours := &work{t: t, dir: f.config.Dir}
			ours.git("fetch", "-q", bare, "main:refs/headway/main/tips/heads/main")
			if _, err := f.WriteLive(ctx, liveOf("", head), nil); err != nil {
				t.Fatal(err)
			}
			if name == "foreign" {
				if err := os.Chown(foreign, 12345, 12345); err != nil {
					t.Fatal(err)
				}
			}
			err := f.Push(ctx, nil)
			if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), token)) {
				t.Errorf("a secret is shown: %v", err)
			}
		})
	}
	if out := (&work{t: t, dir: bare}).git("for-each-ref", "refs/heads/headway"); out != "" {
		t.Errorf("pushed: %s", out)
	}
}
