package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestSecretIsMadeOnceAndDamageIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "seal.key")
	first, err := secret(path, 32)
	if err != nil {
		t.Fatal(err)
	}
	again, err := secret(path, 32)
	if err != nil || !bytes.Equal(first, again) {
		t.Fatalf("the second read gives another key: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := secret(path, 32); err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("a damaged key gives %v", err)
	}
}

func TestDataDirIsLockedForOneProcess(t *testing.T) {
	dir := dataDir(t.TempDir())
	lock, err := dir.open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dir.open(); err == nil || !strings.Contains(err.Error(), "another headway") {
		t.Fatalf("a second open gives %v", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := dir.open()
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// What is not headway's stays, and a folder that is not its data dir is refused.
func TestResetTakesOnlyWhatIsHeadways(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "thesis")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := dataDir(outside).check(); err == nil || !strings.Contains(err.Error(), "is not the data dir of a headway") {
		t.Errorf("a folder of somebody: %v", err)
	}
	if err := dataDir(filepath.Join(outside, "none")).check(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	for _, foreign := range [][]string{nil, {"notes.txt", "work"}} {
		dir := dataDir(t.TempDir())
		lock, err := dir.open()
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		for _, path := range []string{dir.path("etcd", "member"), dir.forge(), dir.identity(), dir.path(".remote-123"), dir.path("images", "a.tar")} {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range foreign {
			if err := os.Mkdir(dir.path(name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := dir.check(); err != nil {
			t.Error(err)
		}
		left, err := dir.remove()
		if err != nil || !slices.Equal(left, foreign) {
			t.Errorf("left are %q, want %q: %v", left, foreign, err)
		}
		found, err := os.ReadDir(string(dir))
		if gone := errors.Is(err, fs.ErrNotExist); gone != (foreign == nil) || len(found) != len(foreign) {
			t.Errorf("%d entries stay of %d: %v", len(found), len(foreign), err)
		}
	}
}

// The data of persistent volumes is nobody's to remove by the way.
func TestRemoveKeepsVolumes(t *testing.T) {
	dir := dataDir(filepath.Join(t.TempDir(), "data"))
	lock, err := dir.open()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, path := range []string{filepath.Join(dir.persistent(), "pvc-1"), dir.made(), dir.agent()} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := dir.remove(); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
	found, err := os.ReadDir(string(dir))
	if err != nil || len(found) != 1 || found[0].Name() != "persistent" {
		t.Errorf("there is %v, %v", found, err)
	}
	if _, err := os.Stat(filepath.Join(dir.persistent(), "pvc-1")); err != nil {
		t.Error(err)
	}
}

// Whoever is told the data dir may stand elsewhere.
func TestDataDirIsAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for given, want := range map[string]string{"b/": filepath.Join(dir, "b"), "/srv/../a//": "/a"} {
		var got string
		cmd := &cobra.Command{Use: "x", RunE: func(*cobra.Command, []string) error { return nil }}
		dataDirFlag(cmd, &got)
		if got != defaultDataDir {
			t.Errorf("by default %q", got)
		}
		cmd.SetArgs([]string{"--data-dir", given})
		if err := cmd.Execute(); err != nil || got != want {
			t.Errorf("%q is %q, want %q: %v", given, got, want, err)
		}
		cmd.SetArgs([]string{"--data-dir", ""})
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "name a folder") {
			t.Errorf("an empty one: %v", err)
		}
	}
}

func TestInstancesDoNotShareNames(t *testing.T) {
	plain, err := dataDir(defaultDataDir).instance()
	if err != nil || plain != "headway" || bridgeName(plain) != "hw0" {
		t.Fatalf("the default: %s, %s, %v", plain, bridgeName(plain), err)
	}
	a, err := dataDir("/srv/a").instance()
	if err != nil {
		t.Fatal(err)
	}
	b, err := dataDir("/srv/b").instance()
	if err != nil {
		t.Fatal(err)
	}
	if a == b || bridgeName(a) == bridgeName(b) || len(bridgeName(a)) > 15 {
		t.Fatalf("%s and %s, %s and %s", a, b, bridgeName(a), bridgeName(b))
	}
}

func TestServerAddress(t *testing.T) {
	for in, want := range map[string]string{"https://10.0.0.1:7443": "10.0.0.1:7443", "https://node": "node:6443", "http://x:1": "", "x": ""} {
		got, err := serverAddress(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("serverAddress(%q) = %q, %v", in, got, err)
		}
	}
}

func TestR14_RedactedHidesUserAndPassword(t *testing.T) {
	if got := redacted("https://me:hunter2@git.example.org/a.git"); strings.Contains(got, "hunter2") || got != "https://git.example.org/a.git" {
		t.Errorf("redacted = %q", got)
	}
}

func TestInitMakesARepositoryWithTheTemplate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "app")
	remote, err := initRepository(dir, dataDir(t.TempDir()))
	if err != nil || remote {
		t.Fatalf("remote %v, %v", remote, err)
	}
	for _, name := range []string{"README.md", "web/deployment.yaml", "jobs/tick.yaml", ".git/HEAD"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := runGit(dir, "diff", "--exit-code", "HEAD"); err != nil {
		t.Error(err)
	}
	if _, err := initRepository(dir, dataDir(t.TempDir())); err == nil {
		t.Error("a directory with files in it was taken")
	}
}
