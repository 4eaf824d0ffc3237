package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
)

// defaultName is the cluster's name unless somebody gives it another one.
const defaultName = "main"

func clusterNameFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "cluster-name", "", "name of the cluster in its refs, notes and commit statuses, for good, and the same on every server: clusters that follow one repository need different ones (default "+defaultName+")")
}

// clusterName is the name of the cluster of this data dir, which keeps it, from
// keepName on: with another one the receipts of before would be those of nobody, and
// Jobs that are done would run again.
func (d dataDir) clusterName(asked string) (string, error) {
	if problems := validation.IsDNS1123Label(asked); asked != "" && len(problems) > 0 {
		return "", fmt.Errorf("--cluster-name %.80q: %s", asked, strings.Join(problems, "; "))
	}
	known, err := readLine(d.name())
	if errors.Is(err, fs.ErrNotExist) {
		known, err = d.firstName(asked)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("read the name of the cluster: %w", err)
	case len(validation.IsDNS1123Label(known)) > 0:
		return "", fmt.Errorf("%s holds %.80q, which is no name of a cluster: it is damaged; restore it from a backup", d.name(), known)
	case asked != "" && asked != known:
		return "", fmt.Errorf("--cluster-name %s: %s is the data dir of the cluster %s, and a cluster keeps its name: leave the flag out, or give this cluster --data-dir of its own", asked, string(d), known)
	}
	return known, nil
}

// firstName is the name of a cluster whose data dir does not tell it yet: one that
// has run is of a release that knew no other name.
func (d dataDir) firstName(asked string) (string, error) {
	name := defaultName
	switch _, err := os.Stat(d.kubeconfig()); {
	case errors.Is(err, fs.ErrNotExist):
		if asked != "" {
			name = asked
		}
	case err != nil:
		return "", err
	}
	return name, nil
}

// keepName writes the name down where it does not stand yet. It comes after what can
// fail for a wrong flag: a start that failed gives nobody a name.
func (d dataDir) keepName(name string) error {
	if _, err := os.Stat(d.name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replaceFile(d.name(), []byte(name+"\n"), 0o644)
}
