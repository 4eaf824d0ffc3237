package render_test

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/render"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var update = flag.Bool("update", false, "write what the scripts in testdata give as what they want")

// script is a tree as text: "-- path --" before each file, the last being "want".
// In a file "\r" at the end of a line is a carriage return.
func script(t *testing.T, file string) (head string, files tree, want string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files = tree{}
	name := ""
	for line := range strings.Lines(string(data)) {
		if at, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(at, " --\n") {
			name = strings.TrimSuffix(at, " --\n")
			files[name] = ""
			continue
		}
		if name == "" {
			head += line
			continue
		}
		if strings.HasSuffix(line, "\\r\n") {
			line = strings.TrimSuffix(line, "\\r\n") + "\r\n"
		}
		files[name] += line
	}
	for name, text := range files {
		if strings.HasPrefix(text, "-> ") || text == "submodule\n" {
			files[name] = strings.TrimSuffix(text, "\n")
		}
	}
	want = files["want"]
	delete(files, "want")
	return head, files, want
}

// told is everything that a render says, as lines.
func told(result render.Result, problems []api.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&b, "problem %s\n", p)
	}
	if len(problems) == 0 {
		for _, m := range result.Manifests {
			unit := ""
			if m.Unit != "" {
				unit = " from " + m.Unit
			}
			fmt.Fprintf(&b, "object %s %s/%s at %s%s\n", m.Kind.Kind, m.Object.GetNamespace(), m.Object.GetName(), m.Place(""), unit)
		}
	}
	for _, n := range result.Skipped {
		fmt.Fprintf(&b, "skipped %s\n", n)
	}
	return b.String()
}

// TestScripts renders each tree in testdata/kustomize and compares what it gives
// with what the script wants, and its objects with those of kustomize itself on a
// filesystem in memory.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/kustomize/*.txt")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	for _, file := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			head, files, want := script(t, file)
			opts := render.Options{Cache: render.NewCache(0)}
			for line := range strings.Lines(head) {
				if dir, ok := strings.CutPrefix(line, "path: "); ok {
					opts.Path = strings.TrimSpace(dir)
				}
				if ignore, ok := strings.CutPrefix(line, "ignore: "); ok {
					opts.Ignore = append(opts.Ignore, strings.TrimSpace(ignore))
				}
			}
			result, problems, err := render.Render(files, opts)
			if err != nil {
				t.Fatal(err)
			}
			got := told(result, problems)
			if *update {
				rewrite(t, file, got)
			} else if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			again, problems, err := render.Render(files, opts)
			if err != nil || told(again, problems) != got || again.Rendered != 0 || again.Read != 0 {
				t.Errorf("from the cache: %d read, %d rendered, %v\n%s", again.Read, again.Rendered, err, told(again, problems))
			}
			if len(problems) == 0 {
				same(t, files, result)
			}
		})
	}
}

func rewrite(t *testing.T, file, got string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(data), "-- want --\n")
	if err := os.WriteFile(file, []byte(text+"-- want --\n"+got), 0o644); err != nil {
		t.Fatal(err)
	}
}

// same compares the objects of every unit with those of `kustomize build`.
func same(t *testing.T, files tree, result render.Result) {
	t.Helper()
	disk, root := reference(t, files)
	units := map[string][]*api.Manifest{}
	for _, m := range result.Manifests {
		if m.Unit != "" {
			units[m.Unit] = append(units[m.Unit], m)
		}
	}
	for unit, manifests := range units {
		built, err := krusty.MakeKustomizer(&krusty.Options{
			Reorder: krusty.ReorderOptionNone, LoadRestrictions: types.LoadRestrictionsNone, PluginConfig: types.DisabledPluginConfig(),
		}).Run(disk, path.Join(root, unit))
		if err != nil {
			t.Errorf("kustomize build %s: %v", unit, err)
			continue
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		want, problems := api.DecodeFile(unit, text, api.DecodeOptions{DefaultNamespace: "default"})
		if len(problems) > 0 {
			t.Errorf("kustomize build %s gives %v", unit, problems)
		}
		if a, b := hashes(manifests), hashes(pointers(want)); !slices.Equal(a, b) {
			t.Errorf("%s\n got %v\nwant %v", unit, a, b)
		}
	}
}

func pointers(ms []api.Manifest) (out []*api.Manifest) {
	for i := range ms {
		out = append(out, &ms[i])
	}
	return out
}

func hashes(ms []*api.Manifest) []string {
	var out []string
	for _, m := range ms {
		out = append(out, fmt.Sprintf("%s %s/%s %s", m.Kind.Kind, m.Object.GetNamespace(), m.Object.GetName(), m.Hash))
	}
	slices.Sort(out)
	return out
}

// reference is the tree on a filesystem of kustomize's own: in memory, or on disk
// when it has symbolic links.
func reference(t *testing.T, files tree) (disk filesys.FileSystem, root string) {
	t.Helper()
	links := false
	for _, text := range files {
		links = links || strings.HasPrefix(text, "-> ")
	}
	if disk, root = filesys.MakeFsInMemory(), "/"; links {
		disk, root = filesys.MakeFsOnDisk(), t.TempDir()
	}
	for name, text := range files {
		at := path.Join(root, name)
		err := disk.MkdirAll(path.Dir(at))
		if target, ok := strings.CutPrefix(text, "-> "); ok && err == nil {
			err = os.Symlink(target, at)
		} else if err == nil && text != "submodule" {
			err = disk.WriteFile(at, []byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return disk, root
}
