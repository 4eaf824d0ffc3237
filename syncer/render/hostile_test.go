package render_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"headway.dev/headway/syncer/render"
)

// allocated is how many bytes f asks for, all in all: its peak is below.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func chain(n, times int, bottom string) tree {
	files := tree{}
	for i := range n {
		var b strings.Builder
		b.WriteString("resources:\n")
		if i == n-1 {
			b.WriteString("- a.yaml\n")
			files[fmt.Sprintf("k%d/a.yaml", i)] = bottom
		}
		for range times {
			if i < n-1 {
				fmt.Fprintf(&b, "- ../k%d\n", i+1)
			}
		}
		fmt.Fprintf(&b, "namePrefix: p%d-\n", i)
		files[fmt.Sprintf("k%d/kustomization.yaml", i)] = b.String()
	}
	return files
}

func configs(from, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\n%s", config(fmt.Sprintf("c-%d", from+i)))
	}
	return b.String()
}

// TestHostileTreesAreRefused gives trees that are made to take the memory or the
// time of whoever reads them.
func TestHostileTreesAreRefused(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 10), ","))
	}
	const k = "kustomization.yaml"
	wide := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n"
	for i := range 6000 {
		wide += fmt.Sprintf("  k%d: v\n", i)
	}
	doubling := "resources: [a.yaml]\nreplacements:\n"
	copying := "resources: [a.yaml]\npatches:\n- target: {kind: ConfigMap}\n  patch: |\n"
	for i := range 40 {
		doubling += "- source: {kind: ConfigMap, name: a, fieldPath: data.a}\n  targets: [{select: {kind: ConfigMap}, fieldPaths: [data.a], options: {delimiter: '-', index: -1}}]\n"
		copying += fmt.Sprintf("    - {op: copy, from: /data, path: /data/x%d}\n", i)
	}
	many := tree{k: "resources:\n"}
	for i := range 4 {
		name := fmt.Sprintf("m%d.yaml", i)
		many[k] += "- " + name + "\n"
		many[name] = configs(i*1000, 1000)
	}
	fan := tree{}
	for depth := range 12 {
		for i := range 10 {
			fan[fmt.Sprintf("outside/d%d/l%d", depth, i)] = fmt.Sprintf("-> ../d%d", depth+1)
		}
	}
	fan["deploy/in"] = "-> ../outside/d0"
	fan["outside/d12/a.yaml"] = config("a")
	for name, c := range map[string]struct {
		files tree
		path  string
		want  string
	}{
		"each base twice":         {chain(30, 2, config("a")), "", "the kustomization uses others more than"},
		"bases in bases":          {chain(60, 1, config("a")), "", "bases inside bases, deeper than 50 levels"},
		"many objects":            {many, "", "makes more than 3000 objects"},
		"many bytes":              {tree{k: "resources: [a.yaml, b.yaml, c.yaml]\n", "a.yaml": "#" + strings.Repeat(" ", 7<<20), "b.yaml": "#" + strings.Repeat(" ", 7<<20), "c.yaml": "#" + strings.Repeat(" ", 7<<20)}, "", "uses more than 16777216 bytes"},
		"huge resource":           {tree{k: "resources: [a.yaml]\n", "a.yaml": strings.Repeat("#", 9<<20)}, "", "a.yaml: the file has 9437184 bytes"},
		"huge data":               {tree{k: "configMapGenerator: [{name: a, files: [a.bin]}]\n", "a.bin": strings.Repeat("#", 9<<20)}, "", "a.bin: the file has 9437184 bytes"},
		"huge manifest":           {tree{"a.yaml": strings.Repeat("#", 9<<20)}, "", "a.yaml: the file has 9437184 bytes"},
		"wide":                    {tree{k: "resources: [a.yaml]\n", "a.yaml": wide}, "", "a map or a list of more than 5000 entries"},
		"anchors":                 {tree{k: "resources: [a.yaml]\n", "a.yaml": "apiVersion: v1\nkind: ConfigMap\n" + bomb}, "", "excessive aliasing"},
		"anchors in a patch":      {tree{k: "resources: [a.yaml]\npatches: [{path: p.yaml}]\n", "a.yaml": config("a"), "p.yaml": "apiVersion: v1\nkind: ConfigMap\n" + bomb}, "", "excessive aliasing"},
		"anchors in itself":       {tree{k: "resources: [a.yaml]\n" + bomb, "a.yaml": config("a")}, "", "excessive aliasing"},
		"deep":                    {tree{k: "resources: [a.yaml]\n", "a.yaml": "apiVersion: v1\nkind: ConfigMap\nx: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)}, "", "deeper than 200 levels"},
		"deep inline patch":       {tree{k: "resources: [a.yaml]\npatches:\n- patch: '" + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "'\n", "a.yaml": config("a")}, "", "deeper than 200 levels"},
		"texts that double":       {tree{k: doubling, "a.yaml": config("a")}, "", "could add more than"},
		"maps that double":        {tree{k: copying, "a.yaml": config("a")}, "", "could add more than"},
		"a patch for everything":  {tree{k: "resources: [a.yaml]\npatches:\n- target: {kind: .*}\n  path: p.yaml\n", "a.yaml": configs(0, 2900), "p.yaml": "- op: add\n  path: /data/x\n  value: " + strings.Repeat("x", 100_000) + "\n"}, "", "could add more than"},
		"a long variable":         {tree{k: "resources: [a.yaml]\nvars:\n- {name: X, objref: {kind: ConfigMap, name: a, apiVersion: v1}, fieldref: {fieldPath: data.a}}\n", "a.yaml": config("a") + "  long: " + strings.Repeat("x", 100_000) + "\n---\n" + config("b") + "  c: " + strings.Repeat("$(X)", 10_000) + "\n"}, "", "could add more than"},
		"work":                    {tree{k: "resources: [a.yaml]\npatches:\n" + strings.Repeat("- {target: {kind: Nothing}, patch: '[{\"op\": \"remove\", \"path\": \"/x\"}]'}\n", 2000), "a.yaml": configs(0, 2900)}, "", "times objects are more than"},
		"links in links":          {fan, "deploy", "links inside links"},
		"links in a circle":       {tree{"a.yaml": "-> b.yaml", "b.yaml": "-> a.yaml"}, "", "leads in a circle"},
		"names with dots":         {tree{"a/../../etc.yaml": config("a")}, "", "no file can have this name"},
		"absolute names":          {tree{"/etc/a.yaml": config("a")}, "", "no file can have this name"},
		"git's own":               {tree{"x/.GIT/hooks/a.yaml": config("a")}, "", "no file can have this name"},
		"names that are no text":  {tree{"a\n\x1b[2Jb\u202e.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n"}, "", `a\n\x1b[2Jb\u202e.yaml: the name has control characters`},
		"names that nobody sees":  {tree{"a\u202e.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A}\n"}, "", `a\u202e.yaml:3:12: metadata.name: Invalid`},
		"names that are no UTF-8": {tree{"a\xff.yaml": config("a")}, "", `a\xff.yaml: the name is not UTF-8`},
		"names that are too long": {tree{strings.Repeat("n", 256): ""}, "", "a part of the name has 256 bytes, at most 255"},
		"paths that are too long": {tree{strings.Repeat("d/", 2048) + "f": ""}, "", "the path has 4097 bytes, at most 4096"},
		"a path that is no text":  {tree{k: "resources: [\"a\\n\\e[2J.yaml\"]\n"}, "", `"a\n\x1b[2J.yaml" is no file`},
		"a pattern that explodes": {tree{k: "resources: [a.yaml]\npatches: [{target: {name: '(((a{1,99}){1,99}){1,99})'}, path: p.yaml}]\n", "a.yaml": config("a"), "p.yaml": "- {op: remove, path: /x}\n"}, "", "patches[0].target.name: is no regular expression"},
	} {
		t.Run(name, func(t *testing.T) {
			said := ""
			used := allocated(func() {
				_, problems, err := render.Render(c.files, render.Options{Path: c.path})
				if err != nil {
					t.Error(err)
				}
				for i, p := range problems {
					if i < 5 {
						said += p.String() + "\n"
					}
				}
			})
			if !strings.Contains(said, c.want) {
				t.Errorf("got %s, want %s", said, c.want)
			}
			if strings.ContainsAny(strings.ReplaceAll(said, "\n", ""), "\x1b\u202e\r") {
				t.Errorf("not escaped: %q", said)
			}
			if used > 1<<30 {
				t.Errorf("%d MiB were allocated", used>>20)
			}
		})
	}
}

func TestTooManyFilesAndObjects(t *testing.T) {
	files := tree{}
	for i := range 100_000 {
		files[fmt.Sprintf("d%d/f%d.yaml", i%500, i)] = "a: b\n"
	}
	result, problems, err := render.Render(files, render.Options{})
	if err != nil || len(problems) > 0 || len(result.Skipped) != len(files) {
		t.Errorf("%v %v %d", problems, err, len(result.Skipped))
	}
	for i := range render.MaxFiles {
		files[fmt.Sprintf("e%d/%d", i%500, i)] = ""
	}
	if _, problems, err = render.Render(files, render.Options{}); err != nil || len(problems) != 1 || !strings.Contains(problems[0].Reason, "more than 100000 files") {
		t.Errorf("%v %v", problems, err)
	}
	few := tree{}
	for i := range render.MaxObjects/5000 + 1 {
		few[fmt.Sprintf("%d.yaml", i)] = configs(i*5000, 5000)
	}
	if _, problems, err = render.Render(few, render.Options{}); err != nil || len(problems) != 1 || !strings.Contains(problems[0].Reason, "more than 50000 objects") {
		t.Errorf("%v %v", problems, err)
	}
}
