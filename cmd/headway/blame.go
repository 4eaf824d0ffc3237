package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer"
)

const blamePath = "/headway/blame"

func blameCommand() *cobra.Command {
	var data, output, namespace string
	var source sourceFlag
	cmd := &cobra.Command{
		Use:   "blame KIND/NAME[:FIELD]",
		Short: "Show which commit each field of an object comes from",
		Long: `Shows for every field that the manifest of an object declares the line that it
stands in, and the commit, author and date that the line comes from. For a pod, or
anything else that a controller made, it answers for the declared object that it
was made from.`,
		Example: "  headway blame deployment/web\n  headway blame deployment/web:spec.replicas\n  headway blame deployment/web:spec.template.spec.containers[web].image\n  headway blame pod/web-7d9c-x2v5k -n shop",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			object, field := blamed(args[0], namespace)
			var b syncer.Blame
			path := blamePath + "?" + source.to(url.Values{"object": {object}, "field": {field}}).Encode()
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, path, &b); err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), b)
			}
			return printBlame(cmd.OutOrStdout(), b)
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	source.flag(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the object (default default)")
	return cmd
}

// blamed takes the argument apart, and puts the namespace into the object.
func blamed(arg, namespace string) (object, field string) {
	object, field, _ = strings.Cut(arg, ":")
	if kind, name, ok := strings.Cut(object, "/"); ok && namespace != "" && !strings.Contains(name, "/") {
		object = kind + "/" + namespace + "/" + name
	}
	return object, field
}

func printBlame(w io.Writer, b syncer.Blame) error {
	if b.Asked != b.Title() {
		fmt.Fprintf(w, "%s was made from %s, declared in %s:%d\n\n", b.Asked, b.Title(), b.Path, b.Line)
	} else {
		fmt.Fprintf(w, "%s, declared in %s:%d\n\n", b.Title(), b.Path, b.Line)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FIELD\tVALUE\tLINE\tCOMMIT\tAUTHOR\tDATE")
	for _, f := range b.Fields {
		author, _, _ := strings.Cut(f.Author, " <")
		fmt.Fprintf(table, "%s\t%s\t%s:%d\t%s\t%s\t%s\n", api.Printable(f.Field), shownValue(f.Value), api.Printable(f.Path), f.Line, shortCommit(f.Commit), cut(api.Printable(author), 20), f.Date.Local().Format(time.DateTime))
	}
	return table.Flush()
}

// shownValue is a value short enough for a table.
func shownValue(raw json.RawMessage) string {
	text := string(raw)
	if text == "" {
		return "(not shown)"
	}
	return cut(api.Printable(text), 40)
}

// serveBlame says where an object's fields come from, for administrators.
func (c *cluster) serveBlame(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	f, err := c.sources.asked(r)
	if err != nil {
		answer(w, nil, err)
		return
	}
	b, err := f.syncer.Blame(r.Context(), f.repository, r.URL.Query().Get("object"), r.URL.Query().Get("field"))
	answer(w, b, err)
}
