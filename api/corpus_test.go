package api_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"headway.dev/headway/api"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"headway.dev/headway/internal/corpus"
)

// supported says whether this version has every kind of a list of documents.
func supported(docs []map[string]any) (missing string, ok bool) {
	for _, d := range docs {
		version, _ := d["apiVersion"].(string)
		kind, _ := d["kind"].(string)
		gv, err := schema.ParseGroupVersion(version)
		if err != nil {
			return kind, false
		}
		if k, ok := api.KindFor(gv.WithKind(kind)); !ok || !k.Declarable {
			return kind, false
		}
	}
	return "", true
}

func TestCorpusValid(t *testing.T) {
	dir := corpus.Dir(t)
	ran, objects, skipped := 0, 0, map[string]int{}
	err := filepath.WalkDir(filepath.Join(dir, "valid"), func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(filepath.Join(dir, "valid"), path)
		if err != nil {
			return err
		}
		var want []map[string]any
		if err := json.Unmarshal(read(t, filepath.Join(dir, "defaulted", name+".json")), &want); err != nil {
			return err
		}
		if kind, ok := supported(want); !ok {
			skipped[kind]++
			return nil
		}
		ran++
		objects += len(want)
		manifests, problems := api.DecodeFile(name, read(t, path), api.DecodeOptions{DefaultNamespace: "default"})
		for _, p := range problems {
			t.Errorf("%s", p)
		}
		if len(manifests) != len(want) {
			t.Errorf("%s: %d objects, want %d", name, len(manifests), len(want))
			return nil
		}
		for i, m := range manifests {
			if m.Object.GetName() == "" {
				m.Object.SetName(m.Object.GetGenerateName() + "abcde")
			}
			for _, p := range m.Problems(api.Validate(m.Object)) {
				t.Errorf("%s", p)
			}
			if m.Object.GetGenerateName() != "" && strings.HasSuffix(m.Object.GetName(), "abcde") {
				m.Object.SetName("")
			}
			if meta, ok := m.Declared["metadata"].(map[string]any); ok && meta["namespace"] == nil {
				m.Object.SetNamespace("")
			}
			got := map[string]any{}
			if err := json.Unmarshal(encode(t, m.Object), &got); err != nil {
				t.Fatal(err)
			}
			delete(got, "status")
			delete(want[i], "status")
			clean(got)
			clean(want[i])
			if !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%s: object %d\n got %s\nwant %s", name, i, encode(t, got), encode(t, want[i]))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if ran < 40 {
		t.Errorf("only %d files were tried", ran)
	}
	t.Logf("%d files with %d objects; not tried for want of a kind: %v", ran, objects, skipped)
}

// clean drops nulls, which say nothing.
func clean(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e == nil {
				delete(v, k)
				continue
			}
			clean(e)
		}
	case []any:
		for _, e := range v {
			clean(e)
		}
	}
}

var (
	header  = regexp.MustCompile(`^# expect: op=(\w+); stage=(\w+); field=(.*?); reason=(.*?); message=(.*)$`)
	indices = regexp.MustCompile(`\[[^]]*\]`)
)

func TestCorpusInvalid(t *testing.T) {
	dir := corpus.Dir(t)
	files, err := filepath.Glob(filepath.Join(dir, "invalid", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	ran := 0
	for _, file := range files {
		name := filepath.Base(file)
		data := read(t, file)
		first, _, _ := strings.Cut(string(data), "\n")
		want := header.FindStringSubmatch(first)
		if want == nil {
			t.Fatalf("%s: no expectation", name)
		}
		ran++
		t.Run(name, func(t *testing.T) { refused(t, name, data, want[1], want[2], want[3], want[4], want[5]) })
	}
	if ran < 60 {
		t.Errorf("only %d files were tried", ran)
	}
	t.Logf("%d files", ran)
}

func refused(t *testing.T, name string, data []byte, op, stage, wantField, reason, message string) {
	manifests, problems := api.DecodeFile(name, data, api.DecodeOptions{DefaultNamespace: "default"})
	var errs field.ErrorList
	if op == "update" {
		if len(problems) > 0 || len(manifests) != 2 {
			t.Fatalf("does not decode: %v", problems)
		}
		old, obj := live(t, manifests[0].Object), live(t, manifests[1].Object)
		errs = api.ValidateUpdate(obj, old)
		problems = append(problems, manifests[1].Problems(errs)...)
	} else {
		for _, m := range manifests {
			e := api.Validate(m.Object)
			errs = append(errs, e...)
			problems = append(problems, m.Problems(e)...)
		}
	}
	if stage == "accepted" {
		if len(problems) > 0 {
			t.Errorf("refused: %v", problems)
		}
		return
	}
	if len(problems) == 0 {
		t.Fatal("accepted")
	}
	found := false
	for _, p := range problems {
		if p.Line < 2 || p.Path != name {
			t.Errorf("no line: %s", p)
		}
		switch stage {
		case "yaml":
			found = found || strings.HasPrefix(p.Reason, "cannot be read")
		case "strict":
			found = found || p.Field == wantField || strings.HasSuffix(p.Field, "."+wantField)
		case "decode":
			found = found || wantField == "-" || indices.ReplaceAllString(p.Field, "") == wantField
		case "typemeta":
			found = found || p.Field == wantField
		}
	}
	for _, e := range errs {
		if e.Field == wantField && class(e.Type) == reason {
			found = true
			head, tail, _ := strings.Cut(message, " … ")
			if body := varying(e.ErrorBody()); !strings.HasPrefix(body, varying(head)) || !strings.HasSuffix(body, varying(tail)) {
				t.Errorf("message %q, want %q", body, message)
			}
		}
	}
	if !found {
		t.Errorf("not refused at %s for %s: %v", wantField, reason, problems)
	}
	t.Log(problems[0])
}

// varying takes out what is different each time: uids.
func varying(s string) string {
	s = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}`).ReplaceAllString(s, "uid")
	return strings.Join(strings.Fields(strings.TrimSuffix(s, "...")), " ")
}

func class(t field.ErrorType) string { return strings.TrimPrefix(string(t), "FieldValue") }

// live is the object as a cluster would have stored it.
func live(t *testing.T, obj api.Object) api.Object {
	t.Helper()
	obj.SetUID("0170d1c1-d42d-4ab2-86ec-303970055c75")
	obj.SetResourceVersion("1")
	obj.SetCreationTimestamp(metav1.Unix(1_800_000_000, 0))
	if job, ok := obj.(*batchv1.Job); ok {
		api.SelectJob(job)
	}
	return obj
}

func read(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
