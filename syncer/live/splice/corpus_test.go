package splice_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.yaml.in/yaml/v3"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/corpus"
	"headway.dev/headway/syncer/live/splice"
)

// TestCorpus changes or removes each value of each real manifest and compares
// bytes: only the value's own lines differ.
func TestCorpus(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 10
	}
	dir := filepath.Join(corpus.Dir(t), "valid")
	var files []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 150 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var edits atomic.Int64
	t.Run("files", func(t *testing.T) {
		for _, path := range files {
			t.Run(strings.TrimPrefix(path, dir), func(t *testing.T) {
				t.Parallel()
				edits.Add(int64(eachValue(t, path, every)))
			})
		}
	})
	if n := edits.Load(); n < 10_000/int64(every) {
		t.Errorf("only %d edits were tried", n)
	}
}

// eachValue edits some of the values of a file, one at a time, and counts them.
func eachValue(t *testing.T, path string, every int) (edits int) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	texts, err := api.Texts(data)
	if err != nil {
		t.Fatal(err)
	}
	number := len(path) // not the same places in all files
	for i, text := range texts {
		if text.Blank() {
			continue
		}
		v, err := text.Value()
		if err != nil {
			t.Fatal(err)
		}
		var root yaml.Node
		if err := yaml.Unmarshal(text.Bytes, &root); err != nil {
			t.Fatal(err)
		}
		if len(root.Content) == 0 {
			continue
		}
		first := 1 + bytes.Count(data[:text.Offset], []byte("\n"))
		for _, p := range places(v, place{}) {
			if number++; number%every != 0 || p.only && len(p.path) == 1 {
				continue
			}
			edits++
			edit := splice.Edit{Document: i, Path: p.path, Value: another(p.value)}
			if edit.Delete = number%5 == 0 || edit.Value == nil; edit.Delete {
				edit.Value = nil
			}
			lines, ok := linesOf(root.Content[0], p, text.JSON)
			check(t, path, data, i, v, edit, first, lines, ok)
		}
	}
	return edits
}

// another is a value of the same type that is not v; nil for a map or a list.
func another(v any) any {
	switch v := v.(type) {
	case string:
		return v + "x"
	case int64:
		return v + 1
	case float64:
		return v + 0.5
	case bool:
		return !v
	case nil:
		return "x"
	}
	return nil
}

func check(t *testing.T, path string, data []byte, document int, v any, edit splice.Edit, first int, lines [2]int, known bool) {
	t.Helper()
	where := fmt.Sprintf("%s: document %d: %s (delete %v)", path, document, edit.Path, edit.Delete)
	out, err := splice.File(data, []splice.Edit{edit})
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return
	}
	want, err := splice.Apply(v, []splice.Edit{edit})
	if err != nil {
		t.Fatal(err)
	}
	texts, err := api.Texts(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := texts[document].Value(); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: reads wrong: %v", where, err)
	}
	if !known {
		return
	}
	before, after := strings.SplitAfter(string(data), "\n"), strings.SplitAfter(string(out), "\n")
	head, tail := 0, 0
	for head < min(len(before), len(after)) && before[head] == after[head] {
		head++
	}
	for tail < min(len(before), len(after))-head && before[len(before)-1-tail] == after[len(after)-1-tail] {
		tail++
	}
	from, to := head+1, len(before)-tail
	for len(after) < len(before) && to > first+lines[1]-1 && from > 1 && before[from-2] == before[to-1] {
		from, to = from-1, to-1 // the same lines are gone, seen from above
	}
	if from < first+lines[0]-1 || to > first+lines[1]-1 {
		t.Errorf("%s: lines %d to %d differ, the value has %d to %d", where, from, to, first+lines[0]-1, first+lines[1]-1)
	}
}

// linesOf gives the lines of a value, with those of comments above it: from the
// line after the value before it to the line before the value behind it, as far
// as a parser's places tell. ok is false for a value that comes by an alias.
func linesOf(root *yaml.Node, p place, json bool) (lines [2]int, ok bool) {
	at, from, to, key := root, 1, 1<<30, 1
	for _, pe := range p.path {
		if at.Kind == yaml.AliasNode {
			return lines, false
		}
		// The entries of at, each from its key or item on.
		var starts, values []*yaml.Node
		found := -1
		if pe.Index != nil {
			starts, values, found = at.Content, at.Content, *pe.Index
		} else {
			for i := 0; i+1 < len(at.Content); i += 2 {
				if at.Content[i].Value == *pe.FieldName {
					found = i / 2
				}
				starts, values = append(starts, at.Content[i]), append(values, at.Content[i+1])
			}
		}
		if found < 0 {
			return lines, false
		}
		if found > 0 {
			from = last(values[found-1])
		} else {
			from = key
		}
		key = starts[found].Line
		if found+1 < len(starts) {
			to = min(to, starts[found+1].Line)
		}
		at = values[found]
	}
	if p.only { // its map or list is written anew
		from--
	}
	if json {
		to++
	}
	return [2]int{from, to}, !hasAnchor(root)
}

// last is the last line of a value that a parser knows to be one.
func last(n *yaml.Node) int {
	line := n.Line
	for _, c := range n.Content {
		line = max(line, last(c))
	}
	return line
}

func hasAnchor(n *yaml.Node) bool { return n.Anchor != "" || slices.ContainsFunc(n.Content, hasAnchor) }
