package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// WorkTree is what a folder on this machine would commit, if it is the top of a
// git work tree.
type WorkTree struct {
	Paths    []string  // tracked, or not ignored; some may be gone. A submodule is one of them.
	Head     string    // commit that is checked out; "" before the first
	Trailers []Trailer // of its message
}

// ReadWorkTree asks the git program, under the configuration of whoever asks, for
// the work tree is theirs. The error is ErrNotFound when dir is not the top of a
// work tree, or when there is no git program here.
func ReadWorkTree(ctx context.Context, dir string) (WorkTree, error) {
	if _, err := os.Lstat(filepath.Join(dir, ".git")); errors.Is(err, os.ErrNotExist) {
		return WorkTree{}, fmt.Errorf("%s is no git work tree: %w", dir, ErrNotFound)
	} else if err != nil {
		return WorkTree{}, err
	}
	path, err := find("")
	if err != nil {
		return WorkTree{}, fmt.Errorf("%w: %w", err, ErrNotFound)
	}
	git := func(args ...string) ([]byte, error) {
		var errs head
		errs.max = 4 << 10
		out := head{max: maxOutput}
		cmd := exec.CommandContext(ctx, path, append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_OPTIONAL_LOCKS=0")
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("git %s in %s: %w%s", args[0], dir, err, errs.suffix())
		}
		if out.cut {
			return nil, fmt.Errorf("git %s in %s printed more than %d bytes", args[0], dir, maxOutput)
		}
		return out.Bytes(), nil
	}
	listed, err := git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return WorkTree{}, err
	}
	var w WorkTree
	seen := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		name = strings.TrimSuffix(name, "/") // of a repository inside
		if name != "" && !seen[name] {
			seen[name] = true
			w.Paths = append(w.Paths, name)
		}
	}
	commit, err := git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
	if exitCode(err) == 1 {
		return w, nil // nothing is committed yet
	}
	if err != nil {
		return WorkTree{}, err
	}
	w.Head = strings.TrimSpace(string(commit))
	raw, err := git("cat-file", "commit", w.Head)
	if err != nil {
		return WorkTree{}, err
	}
	if _, message, ok := bytes.Cut(raw, []byte("\n\n")); ok {
		w.Trailers = ParseTrailers(string(message))
	}
	return w, nil
}
