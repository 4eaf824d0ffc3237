package api_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"headway.dev/headway/api"
)

// TestTexts cuts files into documents: each stands at its offset, and no content is
// outside of them.
func TestTexts(t *testing.T) {
	const one = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"
	for name, tt := range map[string]struct {
		file    string
		content []int // documents with content
	}{
		"one document":          {one, []int{0}},
		"empty":                 {"", nil},
		"byte order mark":       {"\xef\xbb\xbf" + one, []int{0}},
		"markers":               {"# first\n---\n" + one + "---\n# nothing\n--- # x\n" + one + "...\n---\r\n" + one + "... # end\n" + one + "...", []int{1, 3, 5, 6}},
		"no newline at the end": {one + "---\n" + one[:len(one)-1], []int{0, 1}},
		"JSON":                  {"\xef\xbb\xbf \n" + `{"a": 1}{"b": 2}` + "\n \n{}\n", []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			texts, err := api.Texts([]byte(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			var content []int
			rest := []byte(tt.file)
			for i, x := range texts {
				if !bytes.HasPrefix([]byte(tt.file)[x.Offset:], x.Bytes) {
					t.Errorf("document %d is not at its offset", i)
				}
				if !x.Blank() {
					content = append(content, i)
					if v, err := x.Value(); err != nil || v == nil {
						t.Errorf("document %d is %v, %v", i, v, err)
					}
				}
				if rest = bytes.Replace(rest, x.Bytes, nil, 1); i > 0 && x.Offset < texts[i-1].Offset+len(texts[i-1].Bytes) {
					t.Errorf("document %d begins inside the one before", i)
				}
			}
			if !slices.Equal(content, tt.content) {
				t.Errorf("documents with content: %v, want %v", content, tt.content)
			}
			if bytes.Contains(rest, []byte("a")) {
				t.Errorf("left over: %q", rest)
			}
		})
	}
}

// TestTextsReadAsDecodeFile reads what a document says as DecodeFile does, to the end
// of a file whose last line has no end.
func TestTextsReadAsDecodeFile(t *testing.T) {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	for _, file := range []string{
		head + "data:\n  a: |\n    x\n    y", head + "data:\n  a: |+\n    x\n\n", head + "data:\n  a: |+\n    x", head + "data:\n  a: >\n    x\n    y",
		head + "data:\n  a: |-\n    x", head + "data:\n  a: |\r\n    x\r", head + "data:\n  a: x", head + "data:\n  a: |\n    x\n  # why", head + "data:\n  a: |\n    x\n...",
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "x"}}`,
	} {
		for _, end := range []string{"", "\n"} {
			manifests, problems := api.DecodeFile("a.yaml", []byte(file+end), api.DecodeOptions{})
			if len(problems) > 0 || len(manifests) != 1 {
				t.Fatalf("%q: %d manifests, %v", file+end, len(manifests), problems)
			}
			texts, err := api.Texts([]byte(file + end))
			if err != nil {
				t.Fatal(err)
			}
			if v, err := texts[0].Value(); err != nil || !reflect.DeepEqual(v, any(manifests[0].Declared)) {
				t.Errorf("%q reads\n%v, %v, and decodes as\n%v", file+end, v, err, manifests[0].Declared)
			}
		}
	}
}

// TestKeyTwiceInTwoTypes refuses a map whose meaning would be a matter of luck.
func TestKeyTwiceInTwoTypes(t *testing.T) {
	file := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {1: a, '1': b}\n"
	if _, problems := api.DecodeFile("a.yaml", []byte(file), api.DecodeOptions{}); len(problems) != 1 {
		t.Errorf("problems: %v", problems)
	}
}
