package syncer

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"headway.dev/headway/api"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// key makes a key of ssh and returns its line of an allowed signers file.
func (r *remote) key(name string) string {
	r.t.Helper()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		r.t.Fatal("ssh-keygen is not installed: run scripts/install-deps")
	}
	file := filepath.Join(filepath.Dir(r.dir), name)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file).CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(file + ".pub")
	if err != nil {
		r.t.Fatal(err)
	}
	return name + "@x " + string(public)
}

// signs has the commits that follow signed by a key; "" by none.
func (r *remote) signs(name string) {
	r.t.Helper()
	r.git("config", "gpg.format", "ssh")
	r.git("config", "commit.gpgsign", map[bool]string{true: "true", false: "false"}[name != ""])
	r.git("config", "user.signingkey", filepath.Join(filepath.Dir(r.dir), name))
}

// What the applied commit asks for holds for every commit after it, and a commit
// cannot let itself in.
func TestCommitsAreSigned(t *testing.T) {
	r := newRemote(t)
	ada, eve := r.key("ada"), r.key("eve")
	config := settings("allowedSigners: {ssh: keys}")
	one := func(value string) map[string]string { return map[string]string{"deploy/a.yaml": configMap("a", value)} }
	refused := func(w *world, applied, commit string, want ...string) {
		t.Helper()
		w.poll()
		st := w.status()
		if st.Applied != applied || st.Refused != commit {
			t.Fatalf("applied %s, refused %s: %s %q", st.Applied, st.Refused, st.Message, st.Problems)
		}
		for _, text := range want {
			if !strings.Contains(st.Message+"\n"+strings.Join(st.Problems, "\n"), text) {
				t.Errorf("does not say %q: %s %q", text, st.Message, st.Problems)
			}
		}
	}
	accepted := func(w *world, commit string) {
		t.Helper()
		w.poll()
		if st := w.status(); st.Applied != commit {
			t.Fatalf("not applied: %s %q", st.Message, st.Problems)
		}
	}
	first := r.commit("ada", one("1"))
	w := forged(t, r)
	w.settle()
	// The commit that brings the signers is the last that needs no signature.
	r.commit("ada", map[string]string{"keys": ada})
	asks := r.commit("ada", map[string]string{"deploy/.headway.yaml": config})
	if w.status().Applied != first {
		t.Fatalf("status %+v", w.status())
	}
	accepted(w, asks)

	unsigned := r.commit("mallory", one("2"))
	refused(w, asks, unsigned, "1 commit is not signed by anybody whom the applied commit "+short(asks)+" allows to sign",
		"git rebase --exec 'git commit --amend --no-edit -S' "+short(asks), "headway sync --allow-unsigned "+unsigned, `commit `+unsigned+` ("x" by mallory <mallory@x>): it is not signed`)
	// One that is signed on top does not help, nor does one that allows itself.
	r.signs("ada")
	refused(w, asks, r.commit("ada", one("3")), unsigned)
	r.git("reset", "-q", "--hard", asks)
	r.signs("eve")
	itself := r.commit("eve", map[string]string{"keys": ada + eve})
	refused(w, asks, itself, "eve <eve@x>")
	// Taking the setting out must be signed, too.
	r.git("reset", "-q", "--hard", asks)
	r.signs("")
	refused(w, asks, r.commit("eve", map[string]string{"deploy/.headway.yaml": settings()}))
	// A branch that is merged is signed as a whole.
	r.git("reset", "-q", "--hard", asks)
	r.git("checkout", "-q", "-b", "side")
	side := r.commit("eve", one("side"))
	r.git("checkout", "-q", "main")
	r.signs("ada")
	r.commit("ada", map[string]string{"README": "1"})
	r.git("merge", "-q", "--no-ff", "-m", "m", "side")
	refused(w, asks, r.git("rev-parse", "HEAD"), side)

	// All that is wrong is said at once.
	r.git("reset", "-q", "--hard", asks)
	r.signs("")
	refused(w, asks, r.commit("eve", map[string]string{"deploy/b.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\nnope: 1\n"}), "it is not signed", "deploy/b.yaml:4:1: nope: unknown field")

	r.git("reset", "-q", "--hard", asks)
	r.signs("ada")
	both := r.commit("ada", map[string]string{"keys": ada + eve})
	accepted(w, both)
	r.signs("eve")
	alone := r.commit("eve", map[string]string{"keys": eve})
	accepted(w, alone)
	r.signs("ada")
	gone := r.commit("ada", one("4"))
	refused(w, alone, gone)

	// All keys are lost: an operator lets this one commit pass, which is recorded.
	w.order(func(o *api.SourceOrders) {
		o.Allow = &api.Allowance{Commit: gone, Unsigned: true, By: "admin", Why: "eve has left", At: metav1.NewTime(w.now)}
	})
	w.settle()
	if st := w.status(); st.Applied != gone || st.Used == nil || st.Used.Why != "eve has left" || w.s.source().Orders.Allow != nil {
		t.Fatalf("status %+v", st)
	}
	refused(w, gone, r.commit("ada", one("5")))
}

// Signers that nobody can use would lock everybody out: such a commit is refused.
func TestSignersThatCannotBeUsedAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ keys, want string }{
		"none":          {"# nobody\n", "deploy/.headway.yaml:3:18: allowedSigners.ssh: the file names nobody"},
		"not a key":     {"ada@x ssh-ed25519 AAAA\n", "deploy/.headway.yaml:3:18: allowedSigners.ssh: keys:1: the key cannot be read"},
		"no file":       {"", "deploy/.headway.yaml:3:18: allowedSigners.ssh: no such file"},
		"only the rest": {"ada@x\n", "deploy/.headway.yaml:3:18: allowedSigners.ssh: keys:1: a line has principals"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRemote(t)
			files := map[string]string{"deploy/.headway.yaml": settings("allowedSigners: {ssh: keys}"), "deploy/a.yaml": configMap("a", "1")}
			if c.keys != "" {
				files["keys"] = c.keys
			}
			commit := r.commit("ada", files)
			w := forged(t, r)
			w.settle()
			if st := w.status(); st.Refused != commit || len(st.Problems) == 0 || !strings.HasPrefix(st.Problems[len(st.Problems)-1], c.want) {
				t.Errorf("status %+v", st)
			}
		})
	}
}

// A first commit that asks for signatures must have one of those it names.
func TestTheFirstCommitSpeaksForItself(t *testing.T) {
	r := newRemote(t)
	files := map[string]string{"deploy/.headway.yaml": settings("allowedSigners: {ssh: keys}"), "deploy/a.yaml": configMap("a", "1"), "keys": r.key("ada")}
	unsigned := r.commit("ada", files)
	w := forged(t, r)
	w.settle()
	if st := w.status(); st.Refused != unsigned || !strings.Contains(st.Message, "1 commit is not signed by anybody whom its own settings allow") {
		t.Fatalf("status %+v", st)
	}
	r.signs("ada")
	signed := r.commit("ada", map[string]string{"deploy/a.yaml": configMap("a", "2")})
	w.poll()
	if st := w.status(); st.Applied != signed {
		t.Fatalf("status %+v", st)
	}
}
