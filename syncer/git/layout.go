package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// prepare makes the bare repository p.dir, or brings an existing one into the
// form that this version wants.
func prepare(ctx context.Context, p program, config string) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return fmt.Errorf("make the repository: %w", err)
	}
	_, err := os.Stat(filepath.Join(p.dir, "HEAD"))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = p.run(ctx, nil, "init", "--quiet", "--bare", "--object-format=sha1", "--initial-branch=main", "--template=")
	}
	if err != nil {
		return fmt.Errorf("make the repository %s: %w", p.dir, err)
	}
	if err := replace(filepath.Join(p.dir, "config"), config, 0o600); err != nil {
		return err
	}
	return replace(filepath.Join(p.dir, "HEAD"), "ref: refs/heads/main\n", 0o600)
}

// common is the configuration of every repository of ours. With one thread only one
// chain of deltas is in memory at a time, see maxAlloc.
const common = `# Written by Headway on every start; changes are lost.
[core]
	repositoryformatversion = 0
	filemode = true
	bare = true
	fsync = all
	alternateRefsCommand = true
	bigFileThreshold = 32m
	filesRefLockTimeout = 5000
	packedRefsTimeout = 10000
[pack]
	threads = 1
[gc]
	auto = 0
[maintenance]
	auto = false
[transfer]
	hideRefs = refs/headway
[uploadpack]
	allowAnySHA1InWant = true
	allowFilter = true
`

// hostedConfig adds what a repository needs that is pushed to. A push stays one
// pack whatever its size (unpackLimit), which costs three syncs of the disk
// where loose objects cost one each.
func hostedConfig(maxInput int64) string {
	return common + fmt.Sprintf(`[receive]
	fsckObjects = true
	maxInputSize = %d
	autogc = false
	unpackLimit = 1
	advertisePushOptions = true
`, maxInput)
}

// writeHooks makes the hooks call the keeper, a small program that starts fast.
func writeHooks(dir, keeper string) error {
	hooks := filepath.Join(dir, "hooks")
	if err := os.MkdirAll(hooks, 0o700); err != nil {
		return fmt.Errorf("write the hooks: %w", err)
	}
	for _, name := range []string{"pre-receive", "post-receive"} {
		if err := replace(filepath.Join(hooks, name), hookScript(keeper, name), 0o700); err != nil {
			return err
		}
	}
	return nil
}

// hookScript names the keeper as the interpreter, which saves the start of a
// shell, unless its path is one that the kernel cannot take there.
func hookScript(keeper, name string) string {
	if len(keeper) < 120 && !strings.ContainsAny(keeper, " \t\n") {
		return "#!" + keeper + " hook\n" // the kernel adds the path of the script
	}
	return fmt.Sprintf("#!/bin/sh\nexec %s hook %s \"$@\"\n", quote(keeper), name)
}

// quote makes s one word of a shell script.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// replace writes a file whole, unless it has that content already.
func replace(path, content string, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == content {
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		return nil
	}
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.WriteString(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// sweep removes what git programs left behind that were killed: lock files,
// which would refuse every later write, .keep files, which would keep a pack
// from gc forever, and quarantines. It takes only what is older than age; with
// age 0 no git program of ours may be running.
func sweep(dir string, age time.Duration) error {
	stale := func(e fs.DirEntry) bool {
		if age == 0 {
			return true
		}
		info, err := e.Info()
		return err == nil && time.Since(info.ModTime()) > age // gone meanwhile: not stale
	}
	var found []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name, parent := e.Name(), filepath.Base(filepath.Dir(path))
		switch {
		case e.IsDir() && parent == "objects" && strings.HasPrefix(name, "tmp_objdir-"):
			if stale(e) {
				found = append(found, path)
			}
			return fs.SkipDir
		case e.IsDir() && parent == "objects" && len(name) == 2:
			return fs.SkipDir // loose objects
		case e.IsDir():
		case strings.HasSuffix(name, ".lock") || name == "gc.pid",
			parent == "pack" && (strings.HasSuffix(name, ".keep") || strings.HasPrefix(name, "tmp_")):
			if stale(e) {
				found = append(found, path)
			}
		}
		return nil
	})
	for _, path := range found {
		err = errors.Join(err, os.RemoveAll(path))
	}
	if err != nil {
		return fmt.Errorf("clean up %s: %w", dir, err)
	}
	return nil
}
