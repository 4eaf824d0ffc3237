package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// file is one parsed Go file of the repository.
type file struct {
	path    string // from the repository's root, with slashes
	folder  string
	test    bool
	imports []string
	syntax  *ast.File
}

func TestImportsKeepToTheTable(t *testing.T) {
	for _, f := range repository(t) {
		if f.test {
			continue
		}
		rule, ok := ruleFor(f.folder)
		if !ok {
			continue
		}
		for _, imp := range f.imports {
			inner, ours := strings.CutPrefix(imp, Module+"/")
			if !ours || inner == f.folder || allowed(rule.May, inner) {
				continue
			}
			t.Errorf("%s imports %s: %s may import only %s (%s)", f.path, inner, rule.Path, strings.Join(rule.May, ", "), rule.Why)
		}
	}
}

func TestOutsideImportsStayBehindTheirFences(t *testing.T) {
	for _, f := range repository(t) {
		if f.test || strings.HasPrefix(f.folder, "e2e") {
			continue
		}
		for _, fence := range Fences() {
			for _, imp := range f.imports {
				if under(imp, fence.Imports) && !under(f.folder, fence.Only) {
					t.Errorf("%s imports %s, which belongs under %s only: %s", f.path, imp, strings.Join(fence.Only, ", "), fence.Why)
				}
			}
		}
	}
}

func TestProcessWideCallsAreInCmd(t *testing.T) {
	forbidden := map[string]bool{"os.Getenv": true, "os.LookupEnv": true, "os.Exit": true, "log.Fatal": true, "log.Fatalf": true}
	for _, f := range repository(t) {
		if f.test || under(f.folder, []string{"cmd", "e2e", "internal/corpus"}) { // corpus is imported by tests only
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && forbidden[x.Name+"."+sel.Sel.Name] {
					t.Errorf("%s calls %s.%s: only cmd reads the environment and ends the process", f.path, x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestPlansArePure(t *testing.T) {
	impure := []string{"context", "log/slog", "math/rand", "math/rand/v2", "crypto/rand", "os", "io", "net", "net/http", "sync", Module + "/reconcile"}
	calls := map[string]bool{"time.Now": true, "time.Since": true, "time.After": true, "time.Sleep": true, "metav1.Now": true}
	for _, f := range repository(t) {
		if path.Base(f.path) != "plan.go" {
			continue
		}
		for _, imp := range f.imports {
			for _, bad := range impure {
				if imp == bad {
					t.Errorf("%s imports %s: a plan is a pure function", f.path, imp)
				}
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && calls[x.Name+"."+sel.Sel.Name] {
					t.Errorf("%s calls %s.%s: a plan is given the time", f.path, x.Name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestNoInitAndNoBlankRegistration(t *testing.T) {
	for _, f := range repository(t) {
		if f.test || strings.HasSuffix(f.path, ".pb.go") {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function: start-up is visible in cmd", f.path)
			}
		}
		for _, imp := range f.syntax.Imports {
			if imp.Name != nil && imp.Name.Name == "_" && imp.Path.Value != `"embed"` {
				t.Errorf("%s imports %s for its side effect", f.path, imp.Path.Value)
			}
		}
	}
}

func TestFilesStaySmall(t *testing.T) {
	for _, f := range repository(t) {
		if strings.HasSuffix(f.path, ".pb.go") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join("..", "..", f.path))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(raw), "\n"); n > 600 {
			t.Errorf("%s has %d lines: split it by idea (600 at most)", f.path, n)
		}
	}
}

// Every package says what it is for.
func TestEveryPackageHasAComment(t *testing.T) {
	seen, commented := map[string]bool{}, map[string]bool{}
	for _, f := range repository(t) {
		if f.test {
			continue
		}
		seen[f.folder] = true
		if f.syntax.Doc != nil {
			commented[f.folder] = true
		}
	}
	for _, folder := range sortedKeys(seen) {
		if !commented[folder] {
			t.Errorf("package %s has no package comment", folder)
		}
	}
}

// A row that names nothing protects nothing.
func TestRowsNameWhatExists(t *testing.T) {
	there := map[string]bool{}
	for _, f := range repository(t) {
		for d := f.folder; d != "."; d = path.Dir(d) {
			there[d] = true
		}
	}
	exists := func(p string) bool {
		p = strings.TrimSuffix(strings.TrimSuffix(p, "/..."), "/*")
		return there[p]
	}
	for _, r := range Rules() {
		for _, p := range append([]string{r.Path}, r.May...) {
			if !exists(p) {
				t.Errorf("rule %s names %s, which has no Go files", r.Path, p)
			}
		}
		if r.Why == "" {
			t.Errorf("rule %s has no reason", r.Path)
		}
	}
	for _, fence := range Fences() {
		for _, p := range fence.Only {
			if !exists(p) {
				t.Errorf("fence of %s names %s, which has no Go files", fence.Imports[0], p)
			}
		}
	}
}

// controllers and runtime are folders of packages, not packages.
func TestFoldersOfPackagesHaveNoGoFiles(t *testing.T) {
	for _, f := range repository(t) {
		if f.folder == "controllers" || f.folder == "runtime" {
			t.Errorf("%s: no Go files at this level", f.path)
		}
	}
}

func ruleFor(folder string) (Rule, bool) {
	var best Rule
	found := false
	for _, r := range Rules() {
		base := strings.TrimSuffix(r.Path, "/*")
		match := folder == base || strings.HasPrefix(folder, base+"/")
		if strings.HasSuffix(r.Path, "/*") {
			match = strings.HasPrefix(folder, base+"/")
		}
		if match && (!found || len(r.Path) > len(best.Path)) {
			best, found = r, true
		}
	}
	return best, found
}

func allowed(may []string, inner string) bool {
	for _, m := range may {
		if base, deep := strings.CutSuffix(m, "/..."); inner == base || deep && strings.HasPrefix(inner, base+"/") {
			return true
		}
	}
	return false
}

// under reports whether p is one of the roots or below one.
func under(p string, roots []string) bool {
	for _, r := range roots {
		if p == r || strings.HasPrefix(p, r+"/") {
			return true
		}
	}
	return false
}

func repository(t *testing.T) []file {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("found no Go files")
	}
	return files
}

// parsed is every Go file of the repository. All tests read the same.
var parsed = sync.OnceValues(func() ([]file, error) {
	root := filepath.Join("..", "..")
	fset := token.NewFileSet()
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		f := file{path: rel, folder: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go"), syntax: syntax}
		for _, imp := range syntax.Imports {
			name, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			f.imports = append(f.imports, name)
		}
		files = append(files, f)
		return nil
	})
	return files, err
})

func sortedKeys(m map[string]bool) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
