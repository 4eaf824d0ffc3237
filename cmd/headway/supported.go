package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
)

func supportedCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "supported [KIND]",
		Short: "Show which kinds and fields this version acts on",
		Long: `Shows what this version does with each kind of Kubernetes' API and with each
field of a pod's spec, or with KIND one kind and its fields. KIND is a kind or its
plural in any case: Deployment, cronjobs.

  acted      it does what Kubernetes documents
  stored     accepted, kept and shown; nothing acts on it, and a commit with the kind
             is warned, or refused until .headway.yaml names it in allowStored
  harmless   the field is accepted; leaving it out would change nothing here
  refused    a commit with it is refused, by name

A field that is not listed is refused. [] is each item of a list, {} each key of a
map that is not listed itself. What is refused or harmless is so with everything
below it.

With -o json every field stands by itself, down to the last: "kinds" by apiVersion
and kind, "podFields" by path in a pod, "fields" by kind for all others.

  headway supported                          kinds, and the fields of a pod
  headway supported CronJob                  one kind; its pods are as in a Pod
  headway supported -o json | jq '.podFields["spec.hostNetwork"]'`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return kindNames(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			chosen := api.KindRules()
			if len(args) == 1 {
				if chosen = rulesOf(args[0]); len(chosen) == 0 {
					return fmt.Errorf("%q is no kind of Kubernetes %s: headway supported lists them", args[0], kubernetesVersion)
				}
			}
			out := cmd.OutOrStdout()
			switch {
			case output == "json":
				return printJSON(out, supportOf(chosen))
			case len(args) == 1:
				return printKinds(out, chosen)
			}
			return printSupport(out, chosen)
		},
	}
	outputFlag(cmd, &output)
	return cmd
}

func kindNames() (out []string) {
	for _, r := range api.KindRules() {
		out = append(out, r.Kind)
	}
	return slices.Compact(out)
}

// rulesOf finds the rows of a kind by its name, or by its plural when this version
// has it.
func rulesOf(name string) (out []api.KindRule) {
	for _, r := range api.KindRules() {
		k, known := knownKind(r)
		if strings.EqualFold(name, r.Kind) || known && strings.EqualFold(name, k.Resource) {
			out = append(out, r)
		}
	}
	return out
}

func knownKind(r api.KindRule) (api.Kind, bool) {
	for _, k := range api.Kinds() {
		if k.Kind == r.Kind && k.GroupVersion().String() == r.APIVersion {
			return k, true
		}
	}
	return api.Kind{}, false
}

// support is the answer for a program.
type support struct {
	Kinds     map[string]api.Verdict             `json:"kinds"`
	PodFields map[string]fieldSupport            `json:"podFields,omitempty"`
	Fields    map[string]map[string]fieldSupport `json:"fields"`
}

type fieldSupport struct {
	Status api.Verdict `json:"status"`
	Why    string      `json:"why"`
	Only   []string    `json:"only,omitempty"` // the values that are not refused
}

func supportOf(chosen []api.KindRule) support {
	s := support{Kinds: map[string]api.Verdict{}, Fields: map[string]map[string]fieldSupport{}}
	for _, r := range chosen {
		name := r.APIVersion + " " + r.Kind
		s.Kinds[name] = r.Verdict
		k, known := knownKind(r)
		switch {
		case r.Kind == api.ConfigKind:
			s.Fields[name] = fieldsSupport(api.ConfigFields())
		case known && k.Declarable:
			s.Fields[name] = fieldsSupport(api.Fields(k))
			if api.PodSpecPath(k) != "" && s.PodFields == nil {
				s.PodFields = fieldsSupport(api.PodFields())
			}
		}
	}
	return s
}

func fieldsSupport(fields []api.Field) map[string]fieldSupport {
	out := make(map[string]fieldSupport, len(fields))
	for _, f := range fields {
		out[f.Path] = fieldSupport{Status: f.Rule.Verdict, Why: f.Rule.Reason(), Only: f.Rule.Only}
	}
	return out
}

func printSupport(w io.Writer, kinds []api.KindRule) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KIND\tAPIVERSION\tSTATUS\tWHY")
	for _, v := range []api.Verdict{api.Acted, api.Stored, api.Refused} {
		for _, r := range kinds {
			if r.Verdict == v {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", r.Kind, r.APIVersion, r.Verdict, r.Why)
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprint(w, "\nThe fields of a pod, and of the template in every kind that makes pods:\n\n")
	return printFields(w, api.PodFieldRules())
}

func printKinds(w io.Writer, kinds []api.KindRule) error {
	for i, r := range kinds {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s %s: %s", r.APIVersion, r.Kind, r.Verdict)
		if r.Why != "" {
			fmt.Fprintf(w, ": %s", r.Why)
		}
		fmt.Fprintln(w)
		var rules []api.FieldRule
		if k, known := knownKind(r); known && k.Declarable {
			rules = api.FieldRules(k)
			if k.Kind == "Pod" {
				rules = append(rules, api.PodFieldRules()...)
			}
		} else if r.Kind == api.ConfigKind {
			for _, f := range api.ConfigFields() {
				if f.Leaf {
					rules = append(rules, f.Rule)
				}
			}
		}
		if len(rules) == 0 {
			continue
		}
		fmt.Fprintln(w)
		if err := printFields(w, rules); err != nil {
			return err
		}
	}
	return nil
}

// printFields has the reason right behind the field: paths differ in length too
// much for columns.
func printFields(w io.Writer, rules []api.FieldRule) error {
	for _, r := range rules {
		why := r.Reason()
		if why != "" {
			why = "  (" + why + ")"
		}
		if _, err := fmt.Fprintf(w, "%-9s %s%s\n", r.Verdict, r.Path, why); err != nil {
			return err
		}
	}
	return nil
}
