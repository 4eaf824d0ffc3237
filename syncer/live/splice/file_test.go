package splice_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"headway.dev/headway/syncer/live/splice"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// TestFile runs the scripts in testdata. A script is cases, each a line
// "== name", the file, a line "-- edits", the edits, a line "-- result", the new
// file. Edits: "spec.replicas = 5", "a[name=x].b = {c: d}" (YAML), "- a[0]" to
// delete, "1: a = b" for the second document, "a = b # note" for a note. "\r" at
// the end of a line stands for itself, a last line "\" for no line end, a result
// "ERROR text" for an error, "NOTHING" for no file.
func TestFile(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		raw, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			name, rest, _ := strings.Cut(c, "\n")
			file, rest, ok := strings.Cut(rest, "-- edits\n")
			edits, want, ok2 := strings.Cut(rest, "-- result\n")
			if !ok || !ok2 {
				t.Fatalf("%s: %s: no edits or no result", script, name)
			}
			t.Run(filepath.Base(script)+"/"+name, func(t *testing.T) {
				got, err := splice.File([]byte(bytesOf(file)), parseEdits(t, edits))
				want := bytesOf(strings.TrimSuffix(want, "\n") + "\n")
				if text, ok := strings.CutPrefix(want, "ERROR "); ok {
					if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(text)) {
						t.Errorf("error %v, result:\n%s", err, got)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if want == "NOTHING\n" {
					if got != nil {
						t.Errorf("got %q", got)
					}
					return
				}
				if string(got) != want {
					t.Errorf("got\n%s\nwant\n%s\ngot  %q\nwant %q", got, want, got, want)
				}
			})
		}
	}
}

func bytesOf(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "\\r\n", "\r\n"), "\\\n", "")
}

func parseEdits(t testing.TB, text string) (edits []splice.Edit) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		var e splice.Edit
		if n, rest, ok := strings.Cut(line, ": "); ok && len(n) == 1 {
			e.Document, _ = strconv.Atoi(n)
			line = rest
		}
		if rest, ok := strings.CutPrefix(line, "- "); ok {
			e.Delete, e.Path = true, parsePath(t, rest)
		} else {
			path, value, ok := strings.Cut(line, " = ")
			if !ok {
				t.Fatalf("edit %q", line)
			}
			value, e.Note, _ = strings.Cut(value, " # ")
			e.Path = parsePath(t, path)
			if err := yaml.Unmarshal([]byte(value), &e.Value); err != nil {
				t.Fatal(err)
			}
		}
		edits = append(edits, e)
	}
	return edits
}

// parsePath reads a.b[0][name=x][key/with.dots].
func parsePath(t testing.TB, text string) (path fieldpath.Path) {
	t.Helper()
	for text != "" && text != "." {
		if rest, ok := strings.CutPrefix(text, "["); ok {
			in, rest, _ := strings.Cut(rest, "]")
			text = strings.TrimPrefix(rest, ".")
			if i, err := strconv.Atoi(in); err == nil {
				path = append(path, fieldpath.IndexElement(i))
				continue
			}
			if !strings.Contains(in, "=") {
				path = append(path, fieldpath.FieldNameElement(in))
				continue
			}
			var fields value.FieldList
			for _, kv := range strings.Split(in, ",") {
				k, v, _ := strings.Cut(kv, "=")
				if i, err := strconv.Atoi(v); err == nil {
					fields = append(fields, value.Field{Name: k, Value: value.NewValueInterface(int64(i))})
				} else {
					fields = append(fields, value.Field{Name: k, Value: value.NewValueInterface(v)})
				}
			}
			path = append(path, fieldpath.PathElement{Key: &fields})
			continue
		}
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			end = len(text)
		}
		path = append(path, fieldpath.FieldNameElement(text[:end]))
		text = strings.TrimPrefix(text[end:], ".")
	}
	return path
}
