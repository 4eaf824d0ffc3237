package schema

import (
	"bytes"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
)

var update = flag.Bool("update", false, "write schema.yaml anew from client-go")

// TestSchemaIsClientGos cuts client-go's schema, and that of custom kinds'
// definitions, down to the kinds that can be declared and compares. After a new version of client-go, or a new kind:
//
//	go test ./internal/schema -run TestSchemaIsClientGos -update
func TestSchemaIsClientGos(t *testing.T) {
	types := map[string]string{}
	readTypes(t, types, "k8s.io/apiextensions-apiserver", "pkg/client/applyconfiguration/internal/internal.go")
	readTypes(t, types, "k8s.io/client-go", "applyconfigurations/internal/internal.go")
	var todo []string
	for _, k := range api.Kinds() {
		if !k.Declarable {
			continue
		}
		name := nameOf(k)
		types[name] = withoutStatus(types[name])
		todo = append(todo, name)
	}
	named := regexp.MustCompile(`namedType: (\S+)`)
	want := map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if want[name] {
			continue
		}
		want[name] = true
		if types[name] == "" {
			t.Fatalf("no type %s", name)
		}
		for _, m := range named.FindAllStringSubmatch(types[name], -1) {
			todo = append(todo, m[1])
		}
	}
	out := "types:\n"
	for _, name := range slices.Sorted(maps.Keys(want)) {
		out += types[name]
	}
	if *update {
		if err := os.WriteFile("schema.yaml", []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if out != schemaText {
		t.Errorf("schema.yaml is not what client-go has; run this test with -update")
	}
}

// readTypes adds the types of the schema that a file of a module holds.
func readTypes(t *testing.T, types map[string]string, module, file string) {
	t.Helper()
	var stderr bytes.Buffer
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Stderr = &stderr
	dir, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), file))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(source), "typed.YAMLObject(`types:\n")
	if !ok {
		t.Fatalf("%s keeps its schema elsewhere now", module)
	}
	text, _, _ = strings.Cut(text, "`)")
	for _, block := range strings.Split("\n"+text, "\n- name: ")[1:] {
		name, _, _ := strings.Cut(block, "\n")
		types[name] = "- name: " + strings.TrimSuffix(block, "\n") + "\n"
	}
}

// withoutStatus drops the field status of a kind.
func withoutStatus(block string) string {
	var out []string
	skip := false
	for _, line := range strings.Split(block, "\n") {
		if strings.HasPrefix(line, "    - name: ") {
			skip = line == "    - name: status"
		}
		if line == "" || !skip {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

func TestEveryDeclarableKindHasASchema(t *testing.T) {
	for _, k := range api.Kinds() {
		if !k.Declarable {
			continue
		}
		if _, err := TypeOf(k); err != nil {
			t.Error(err)
		}
	}
}
