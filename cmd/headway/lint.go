package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
)

func lintCommand() *cobra.Command {
	var sub, output string
	cmd := &cobra.Command{
		Use:   "lint [DIR]",
		Short: "Judge the manifests of a directory, without a cluster",
		Long: `Judges the manifests of a directory (default the current one) as a push would,
as far as the files alone can tell: what cannot be read or is not valid, kinds and
fields that this version does not act on, objects that are declared twice, and
.headway.yaml. No cluster is asked, and none has to run: what depends on what is
there now (immutable fields, deletions, capacity) is judged by the push.

DIR stands for the repository's root, and --path for the source's path in it. It
need not be a git repository. .git is left out; what .gitignore names is not, unless
.headway.yaml ignores it.

Each problem is a line on standard output:

  path:line:column: field: reason

Warnings, skipped files and the counts go to standard error. Exit status: 0 when
there is no problem, 1 when there is one.

  headway lint
  headway lint --path deploy ~/app
  headway lint -o json . | jq -r '.problems[].path' | sort -u`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			dir := "."
			if len(args) == 1 {
				dir = args[0]
			}
			report, err := lint(dir, sub)
			if err != nil {
				return fmt.Errorf("lint: %w", err)
			}
			if err := report.print(cmd.OutOrStdout(), cmd.ErrOrStderr(), output); err != nil {
				return err
			}
			if len(report.Problems) > 0 {
				return errors.New("lint: " + report.counts())
			}
			_, err = fmt.Fprintln(cmd.ErrOrStderr(), "headway: lint: "+report.counts())
			return err
		},
	}
	cmd.Flags().StringVar(&sub, "path", "", "folder of DIR that holds the manifests (default DIR itself)")
	outputFlag(cmd, &output)
	return cmd
}

// lintReport is what lint found.
type lintReport struct {
	Path     string        `json:"path"`    // the source's path in DIR
	Objects  int           `json:"objects"` // declared, of those files that can be read
	Files    int           `json:"files"`   // that were read
	Units    int           `json:"units"`   // kustomizations
	Problems []lintProblem `json:"problems"`
	Warnings []lintProblem `json:"warnings"`
	Skipped  []lintNotice  `json:"skipped"`
}

type lintProblem struct {
	Path   string `json:"path"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason"`
}

type lintNotice struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// lint judges the manifests in the folder sub of dir.
func lint(dir, sub string) (lintReport, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return lintReport{}, fmt.Errorf("%q is a file: name the folder that stands for the repository's root", dir)
	}
	if rel := strings.Trim(sub, "/"); rel != "" && !filepath.IsLocal(rel) {
		return lintReport{}, fmt.Errorf("--path %q: name a folder inside of %q, from there", sub, dir)
	}
	tree, err := openFolder(dir)
	if err != nil {
		return lintReport{}, err
	}
	defer tree.close()
	sub = path.Clean("/" + sub)[1:]
	result, _, problems, err := render.Source(tree, sub, nil)
	if err != nil {
		return lintReport{}, err
	}
	// What one object says of another is judged here, on result.Manifests.
	report := lintReport{
		Path: sub, Objects: len(result.Manifests), Files: result.Read, Units: result.Units,
		Problems: lintProblems(problems), Warnings: lintProblems(result.Warnings), Skipped: make([]lintNotice, 0, len(result.Skipped)),
	}
	for _, n := range result.Skipped {
		report.Skipped = append(report.Skipped, lintNotice(n))
	}
	return report, nil
}

// lintProblems puts problems in the order of the files.
func lintProblems(problems []api.Problem) []lintProblem {
	slices.SortStableFunc(problems, func(a, b api.Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), a.Line-b.Line, a.Column-b.Column)
	})
	out := make([]lintProblem, 0, len(problems))
	for _, p := range problems {
		out = append(out, lintProblem(p))
	}
	return out
}

// counts is the last line.
func (r lintReport) counts() string {
	many := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	problems := many(len(r.Problems), "problem")
	if len(r.Problems) >= render.MaxNotices {
		problems = "at least " + problems
	}
	from := many(r.Files, "file")
	if r.Units > 0 {
		from += " and " + many(r.Units, "kustomization")
	}
	return fmt.Sprintf("%s, %s; %s in %s", problems, many(len(r.Warnings), "warning"), many(r.Objects, "object"), from)
}

func (r lintReport) print(out, notes io.Writer, output string) error {
	if output == "json" {
		return printJSON(out, r)
	}
	for _, n := range r.Skipped {
		fmt.Fprintf(notes, "skipped: %s: %s\n", api.Printable(n.Path), api.Printable(n.Why))
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(notes, "warning: %s\n", api.Problem(w))
	}
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(out, api.Problem(p)); err != nil {
			return err
		}
	}
	return nil
}
