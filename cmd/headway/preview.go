package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
	"headway.dev/headway/syncer/git"
	"headway.dev/headway/syncer/render"
)

// planError ends headway plan: 1 the commit would be refused, 2 something would
// change.
type planError struct {
	code   int
	reason string // "" where the output has said it
}

func (e *planError) exitCode() int { return e.code }

func (e *planError) Error() string {
	if e.reason == "" {
		return ""
	}
	return "headway plan: " + e.reason
}

func planCommand() *cobra.Command {
	var data, output string
	var source sourceFlag
	cmd := &cobra.Command{
		Use:   "plan [REF|DIR]",
		Short: "Show what a commit or a folder would change, without a push",
		Long: `Judges a commit as a push would, and shows what applying it would change. Nothing
is changed.

REF is a branch, a tag or a commit (7 digits or more) of the cluster's repository, or
what lies before one (main~1); without it, or as HEAD, the newest commit of the followed
branch. DIR is a folder on this
machine that stands for the repository's root, such as a checkout in a forge's CI:
what git would commit there, or all of a folder that is no git work tree. The
trailers of the commit that is checked out count (Allow-Delete, Replace). What is
both, a folder here and a branch there, is taken for the folder; refs/heads/NAME is
always a branch.

Exit status: 0 nothing would change; 2 something would; 1 the commit would be
refused, or the question could not be answered.`,
		Example: "  headway plan .\n  headway plan feature -o json\n  git push -o dry-run",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			server, err := serverOf(dataDir(data))
			if err != nil {
				return err
			}
			preview, err := server.plan(cmd.Context(), source, strings.Join(args, ""), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := printPlan(cmd.OutOrStdout(), preview, output); err != nil {
				return err
			}
			return planVerdict(preview)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	return cmd
}

// planVerdict is the exit status.
func planVerdict(p syncer.Preview) error {
	switch {
	case !p.OK:
		return &planError{1, "this would be refused: " + reasons(p)}
	case p.Create+p.Update+p.Delete > 0:
		return &planError{2, ""}
	}
	return nil
}

func reasons(p syncer.Preview) string {
	n := len(p.Problems)
	if p.Refusal != "" {
		n++
	}
	if n == 1 {
		return "1 problem"
	}
	return fmt.Sprintf("%d problems", n)
}

func printPlan(w io.Writer, p syncer.Preview, output string) error {
	if output == "json" {
		return printJSON(w, p)
	}
	return p.Write(w)
}

// plan asks about a folder, if name is one, else about a ref.
func (e endpoint) plan(ctx context.Context, source sourceFlag, name string, notes io.Writer) (preview syncer.Preview, err error) {
	info, err := os.Stat(name)
	switch {
	case name == "" || errors.Is(err, fs.ErrNotExist) && !strings.HasPrefix(name, ".") && !strings.HasPrefix(name, "/"):
		err = e.call(ctx, http.MethodGet, planPath+"?"+source.to(url.Values{"ref": {name}}).Encode(), nil, &preview)
		return preview, err
	case err != nil:
		return preview, err
	case !info.IsDir():
		return preview, fmt.Errorf("%s is a file: give the folder that stands for the repository's root", name)
	}
	folder, head, trailers, err := workTree(ctx, name, notes)
	if err != nil {
		return preview, err
	}
	query := source.to(url.Values{})
	if head != "" {
		query.Set("head", head)
	}
	for _, t := range trailers {
		if strings.EqualFold(t.Key, syncer.TrailerAllowDelete) || strings.EqualFold(t.Key, syncer.TrailerReplace) {
			query.Add("trailer", t.Key+": "+t.Value)
		}
	}
	var body bytes.Buffer
	if err := folder.Send(&body); err != nil {
		return preview, err
	}
	err = e.call(ctx, http.MethodPost, planPath+"?"+query.Encode(), &body, &preview)
	return preview, err
}

// workTree reads what a folder would commit: what git lists, or all of it when it
// is no git work tree.
func workTree(ctx context.Context, dir string, notes io.Writer) (*syncer.Folder, string, []git.Trailer, error) {
	tree, err := git.ReadWorkTree(ctx, dir)
	plain := errors.Is(err, git.ErrNotFound)
	if err != nil && !plain {
		return nil, "", nil, err
	}
	var local *folder
	if plain {
		fmt.Fprintf(notes, "headway: %v; every file in it counts\n", err)
		local, err = openFolder(dir)
	} else {
		local, err = listFolder(dir, tree.Paths)
	}
	if err != nil {
		return nil, "", nil, err
	}
	defer local.close()
	out := syncer.NewFolder()
	for _, f := range local.files {
		if err := addFile(out, local, f); err != nil {
			return nil, "", nil, fmt.Errorf("read %s: %w", dir, err)
		}
	}
	return out, tree.Head, tree.Trailers, nil
}

func addFile(out *syncer.Folder, from *folder, f render.File) error {
	if f.Mode == render.Submodule || f.Size > api.MaxFileBytes {
		return out.Add(f.Path, f.Mode, nil, f.Size)
	}
	data, err := from.Read(f.Path)
	if err != nil {
		return err
	}
	return out.Add(f.Path, f.Mode, data, 0)
}

// listFolder is a folder of the files that are named; those that are gone are left
// out, and a folder among them is a repository of its own.
func listFolder(dir string, paths []string) (*folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{root: root}
	for _, p := range paths {
		info, err := root.Lstat(p)
		file := render.File{Path: p}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, errors.Join(err, root.Close())
		case info.IsDir():
			file.Mode = render.Submodule
		case info.Mode()&fs.ModeSymlink != 0:
			file.Mode = render.Symlink
		case !info.Mode().IsRegular():
			continue // a socket, a device: git does not hold it
		default:
			file.Size = info.Size()
		}
		f.files = append(f.files, file)
	}
	return f, nil
}
