package syncer

import (
	"encoding/hex"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// object writes an object as git's own checks would not let anybody.
func (r *remote) object(kind, content string) string {
	r.t.Helper()
	cmd := exec.Command("git", "hash-object", "-t", kind, "-w", "--literally", "--stdin")
	cmd.Dir, cmd.Env, cmd.Stdin = r.dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1"), strings.NewReader(content)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// tree writes a folder of entries, each "MODE NAME" and its object.
func (r *remote) tree(entries ...[2]string) string {
	r.t.Helper()
	var b strings.Builder
	for _, e := range entries {
		sum, err := hex.DecodeString(e[1])
		if err != nil {
			r.t.Fatal(err)
		}
		b.WriteString(e[0] + "\x00" + string(sum))
	}
	return r.object("tree", b.String())
}

// TestR2_NamesThatNoFileCanHave: each is told by its own line, once, and does not
// stand in the way of the commit that mends it (R13).
func TestR2_NamesThatNoFileCanHave(t *testing.T) {
	r := newRemote(t)
	first := r.commit("ada", map[string]string{"deploy/a.yaml": configMap("a", "1")})
	w := forged(t, r)
	w.settle()
	blob := r.object("blob", configMap("b", "1"))
	long := strings.Repeat("x", 300)
	names := []string{"\n.yaml", "\x1b[2J.yaml", "..", long, "\xff.yaml", "ü.yaml"}
	slices.Sort(names)
	var entries [][2]string
	for _, name := range names {
		entries = append(entries, [2]string{"100644 " + name, blob})
	}
	deep := r.tree([2]string{"100644 f", blob})
	for range 20 {
		deep = r.tree([2]string{"40000 " + long[:250], deep})
	}
	refused := func(tree string, want ...string) {
		t.Helper()
		bad := r.git("commit-tree", "-m", "x", "-p", first, tree)
		r.git("update-ref", "refs/heads/main", bad)
		w.poll()
		st := w.status()
		if st.Applied != first || st.Refused != bad {
			t.Fatalf("status %+v", st)
		}
		if !slices.Equal(st.Problems, want) {
			t.Errorf("problems\n%s\nwant\n%s", strings.Join(st.Problems, "\n"), strings.Join(want, "\n"))
		}
	}
	root := r.tree([2]string{"40000 " + long[:250], deep}, [2]string{"40000 deploy", r.tree(entries...)})
	const rename = ": rename the file"
	refused(root,
		`deploy/\n.yaml: the name has control characters`+rename,
		`deploy/\x1b[2J.yaml: the name has control characters`+rename,
		`deploy/..: no file can have this name: a part of it is empty, a dot, two dots or .git`,
		`deploy/`+strings.Repeat("x", 193)+`…: a part of the name has 300 bytes, at most 255 can be`+rename,
		`deploy/\xff.yaml: the name is not UTF-8`+rename,
		long[:200]+`…: the path has 5272 bytes, at most 4096 can be`+rename,
	)
	// What is no tree at all is not read again and again either.
	slash := r.tree([2]string{"100644 a/b", blob})
	refused(slash, `.: the tree is damaged: folder `+slash+`: entry 0 has the name "a/b": write the folder anew, with git itself`)
	third := r.commit("ada", map[string]string{"deploy/a.yaml": configMap("a", "2")})
	w.poll()
	if st := w.status(); st.Applied != third {
		t.Errorf("status %+v", st)
	}
}
