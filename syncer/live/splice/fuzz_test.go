package splice_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live/splice"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// FuzzFile edits any bytes: the result reads as it should, and all other documents
// are the same bytes; or there is an error.
func FuzzFile(f *testing.F) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		f.Fatalf("no scripts: %v", err)
	}
	for _, script := range scripts {
		raw, err := os.ReadFile(script)
		if err != nil {
			f.Fatal(err)
		}
		for i, c := range strings.Split("\n"+string(raw), "\n== ")[1:] {
			_, rest, _ := strings.Cut(c, "\n")
			file, _, _ := strings.Cut(rest, "-- edits\n")
			f.Add([]byte(bytesOf(file)), uint(i), "a\nb: 'c", i%3 == 0)
		}
	}
	for _, file := range []string{
		"", "\xef\xbb\xbfa: 1\n", "a: &a [*a]", "a: &a {b: *a}\n", "{", "[1, 2]", "{}", "a", "- - - a", "? [a]\n: b", "a: !!binary |\n  aGk=\n",
		"a: &x\n  &y b: *x\n", "%YAML 1.1\n---\na: 1\n", "a:\r b:\r  c: 1\r", "a: b\u2028c: d", "a: [b: c, ? d : e]\n", "!!map {a: 1}\n", "&r a: *r\n",
		"a: {<<: {b: 1}, c: 2}\n", "a: \"\\\n  x\"\n", "a: |9\n         x\n", "{\"a\": 1}{\"a\": 1}", strings.Repeat("[", 300), strings.Repeat("a: {", 190) + strings.Repeat("}", 190),
		"a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n", "a:\tb\n", "a: 'b''c' # d\n", "\"a\": \"b\"\n...\nc: d\n",
	} {
		for n := range uint(3) {
			f.Add([]byte(file), n, "x", n == 2)
		}
	}
	f.Fuzz(fuzzOne)
}

func fuzzOne(t *testing.T, data []byte, n uint, text string, remove bool) {
	texts, err := api.Texts(data)
	if err != nil {
		return
	}
	type target struct {
		document int
		path     fieldpath.Path
		value    any
	}
	var all []target
	for i, x := range texts {
		if v, err := x.Value(); err == nil && !x.Blank() {
			for _, p := range places(v, place{}) {
				if all = append(all, target{i, p.path, v}); len(all) > 1000 {
					break
				}
			}
		}
	}
	if len(all) == 0 {
		return
	}
	to := all[n%uint(len(all))]
	edit := splice.Edit{Document: to.document, Path: to.path, Delete: remove, Note: "note"}
	if edit.Value = text; n%5 == 1 {
		edit.Value = map[string]any{text: []any{text, int64(1)}}
	}
	out, err := splice.File(data, []splice.Edit{edit})
	if err != nil {
		if len(text) > 8 && strings.Contains(err.Error(), text) {
			t.Errorf("the error tells the value: %v", err)
		}
		return
	}
	if remove {
		edit.Value = nil
	}
	want, err := splice.Apply(to.value, []splice.Edit{edit})
	if err != nil {
		t.Fatal(err)
	}
	after, err := api.Texts(out)
	if err != nil || len(after) != len(texts) {
		t.Fatalf("%d documents, %v", len(after), err)
	}
	for i := range after {
		if i != to.document && !bytes.Equal(after[i].Bytes, texts[i].Bytes) {
			t.Errorf("document %d was changed", i)
		}
	}
	if got, err := after[to.document].Value(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("reads %v, %v, not %v", got, err, want)
	}
}

// BenchmarkFile changes one scalar of a file of 1,000 lines.
func BenchmarkFile(b *testing.B) {
	var file bytes.Buffer
	file.WriteString("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: big # the big one\ndata:\n")
	for i := range 995 {
		fmt.Fprintf(&file, "  key-%d: \"value %d\" # %d\n", i, i, i)
	}
	path := fieldpath.MakePathOrDie("data", "key-500")
	b.SetBytes(int64(file.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := splice.File(file.Bytes(), []splice.Edit{{Path: path, Value: "other"}}); err != nil {
			b.Fatal(err)
		}
	}
}
