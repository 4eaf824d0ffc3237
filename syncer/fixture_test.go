package syncer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	"headway.dev/headway/syncer/git"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// history is a repository in memory.
type history struct {
	parents map[string]string
	files   map[string]map[string]string
	kept    []string
	fail    error
	renders int
	says    map[string][]Trailer // by commit
	always  []Trailer            // said by every commit

	unsigned map[string]string   // by commit, why it counts as unsigned
	decoded  map[string]Rendered // by name and text
}

// Trailers follows the parents.
func (h *history) Trailers(_ context.Context, from, to string) ([]Trailer, error) {
	var out []Trailer
	for c := to; c != "" && c != from; c = h.parents[c] {
		out = append(append(out, h.says[c]...), h.always...)
		if from == "" {
			break
		}
	}
	return out, h.fail
}

func (h *history) Unsigned(_ context.Context, from, _, to string, _ time.Time) ([]git.Unsigned, error) {
	var out []git.Unsigned
	for c := to; c != from && c != ""; c = h.parents[c] {
		if why := h.unsigned[c]; why != "" {
			out = append(out, git.Unsigned{Commit: c, Subject: "x", Author: "Eve <eve@example.org>", Why: why})
		}
	}
	return out, h.fail
}

// say puts trailers on a commit: "Key: value" each.
func (h *history) say(commit string, lines ...string) string {
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		h.says[commit] = append(h.says[commit], Trailer{Commit: commit, Key: key, Value: value})
	}
	return commit
}

func newHistory() *history {
	return &history{parents: map[string]string{}, files: map[string]map[string]string{}, says: map[string][]Trailer{}, decoded: map[string]Rendered{}}
}

// add makes a commit. Names are padded to look like hashes.
func (h *history) add(name, parent string, files map[string]string) string {
	id := commitID(name)
	if parent != "" {
		h.parents[id] = commitID(parent)
	}
	h.files[id] = files
	return id
}

func commitID(name string) string { return name + strings.Repeat("0", 40-len(name)) }

func (h *history) Author(_ context.Context, commit string) (string, error) {
	if h.files[commit] == nil {
		return "", fmt.Errorf("commit %s not found", commit)
	}
	return "Ada <ada@example.org>", h.fail
}

func (h *history) IsAncestor(_ context.Context, ancestor, commit string) (bool, error) {
	for c := commit; c != ""; c = h.parents[c] {
		if c == ancestor {
			return true, h.fail
		}
	}
	return false, h.fail
}

func (h *history) Origins(context.Context, string, string) (map[string]Origin, error) {
	return nil, h.fail
}

func (h *history) Keep(_ context.Context, commits []string) error {
	h.kept = commits
	return nil
}

// decode reads a file once, as the render cache does: what did not change gives
// other manifests of the same objects.
func (h *history) decode(name, text string) Rendered {
	id := name + "\x00" + text
	if e, known := h.decoded[id]; known {
		return e
	}
	var e Rendered
	decoded, problems := api.DecodeFile(name, []byte(text), api.DecodeOptions{DefaultNamespace: "default"})
	e.Problems = problems
	for i := range decoded {
		e.Problems = append(e.Problems, decoded[i].Check()...)
		e.Manifests = append(e.Manifests, &decoded[i])
	}
	h.decoded[id] = e
	return e
}

func (h *history) Render(_ context.Context, commit, path string) (Rendered, error) {
	if h.fail != nil {
		return Rendered{}, h.fail
	}
	files, ok := h.files[commit]
	if !ok {
		return Rendered{}, fmt.Errorf("commit %s not found", commit)
	}
	h.renders++
	config := api.DefaultConfig()
	config.Paths = []api.PathConfig{{Path: "report", Drift: api.DriftReport}}
	out := Rendered{Config: &config}
	if text, ok := files[api.ConfigFile]; ok {
		config, out.Problems = api.DecodeConfig(api.ConfigFile, []byte(text))
	}
	found := path == ""
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path != "" && !strings.HasPrefix(name, path+"/") {
			continue
		}
		found = true
		if !strings.HasSuffix(name, ".yaml") || name == api.ConfigFile {
			continue
		}
		if !api.Declares([]byte(files[name])) {
			out.Skipped = append(out.Skipped, api.Problem{Path: name, Reason: "no manifest"})
			continue
		}
		e := h.decode(name, files[name])
		out.Problems = append(out.Problems, e.Problems...)
		for _, m := range e.Manifests {
			again := *m
			out.Manifests = append(out.Manifests, &again)
		}
	}
	if !found {
		out.Problems = append(out.Problems, api.Problem{Path: path, Reason: "no such folder in the commit"})
	}
	return out, nil
}

// world is a syncer over a store in memory.
type world struct {
	t    testing.TB
	kv   *memory.KV
	st   *store.Store
	repo *history
	s    *Syncer
	now  time.Time
	cfg  Config
	bulk int // objects in one transaction; 0: as usual

	deny    func(store.Txn) error                                    // why the store does not take a write
	commits int                                                      // by the syncer
	around  func(n int, commit func() (int64, error)) (int64, error) // around each of them
}

// writer is the syncer's view of the store; a test may stand around its writes.
type writer struct {
	*store.Store
	w *world
}

func (s *writer) Commit(ctx context.Context, t store.Txn) (int64, error) {
	s.w.commits++
	if s.w.deny != nil {
		if err := s.w.deny(t); err != nil {
			return 0, err
		}
	}
	if s.w.around == nil {
		return s.Store.Commit(ctx, t)
	}
	return s.w.around(s.w.commits, func() (int64, error) { return s.Store.Commit(ctx, t) })
}

func newWorld(t testing.TB, edit ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, kv: memory.New(), repo: newHistory(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	w.cfg = Config{Commits: w.repo, Log: slog.New(slog.NewTextHandler(logTo{t}, nil))}
	for _, e := range edit {
		e(&w.cfg)
	}
	w.open()
	return w
}

// logTo writes the log of a test.
type logTo struct{ t testing.TB }

func (l logTo) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// open starts the process again over the same backend.
func (w *world) open() {
	w.t.Helper()
	w.st = store.New(w.kv, store.Options{Seal: storetest.SealKey(), Allocate: admission.DefaultServices().Allocate})
	cfg := w.cfg
	cfg.Store = &writer{Store: w.st, w: w}
	cfg.Now = func() time.Time { return w.now }
	w.s = New(cfg)
	if w.bulk > 0 {
		w.s.bulk = w.bulk
	}
	w.st.OnEvents(w.s.Handle)
	if err := w.st.Load(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// push moves the hosted branch.
func (w *world) push(commit string) {
	w.t.Helper()
	w.setRef("refs/heads/main", commit)
	w.settle()
}

func (w *world) setRef(ref, commit string) {
	w.t.Helper()
	key := refKey(ref)
	old, _, err := w.st.GetAt(context.Background(), key, 0)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		w.t.Fatal(err)
	}
	r := &api.GitRef{ObjectMeta: metav1.ObjectMeta{Name: key.Name}, Ref: ref, Commit: commit}
	op := store.Op{Verb: store.Create, Object: r}
	if err == nil {
		r = old.DeepCopyObject().(*api.GitRef)
		r.Commit = commit
		op = store.Op{Verb: store.Update, Object: r}
	}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{op}}); err != nil {
		w.t.Fatal(err)
	}
}

// settle steps the store and the syncer until neither has anything to do, moving
// the clock over short waits.
func (w *world) settle() {
	w.t.Helper()
	for range 100_000 {
		more, err := w.st.Step(context.Background())
		if err != nil {
			w.t.Fatal(err)
		}
		if w.s.Step(context.Background()) || more {
			continue
		}
		next := w.s.Next()
		if next.IsZero() || next.Sub(w.now) > 500*time.Millisecond {
			return
		}
		if next.After(w.now) {
			w.now = next
		}
	}
	w.t.Fatal("does not settle")
}

// order gives an order as an operator does.
func (w *world) order(edit func(*api.SourceOrders)) {
	w.t.Helper()
	_, err := Order(context.Background(), w.st, "main", func(src *api.Source) error { edit(&src.Orders); return nil })
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) status() api.SourceStatus {
	w.t.Helper()
	src := w.s.source()
	if src == nil {
		w.t.Fatal("no Source")
	}
	return src.Status
}

func key(resource, ns, name string) store.Key {
	for _, k := range api.Kinds() {
		if k.Resource == resource {
			return store.Key{GroupResource: k.GroupResource(), Namespace: ns, Name: name}
		}
	}
	panic(resource)
}

func (w *world) get(resource, ns, name string) api.Object {
	storetest.Settle(w.t, w.st)
	return w.st.Get(key(resource, ns, name))
}

// change edits a live object as kubectl would.
func (w *world) change(resource, ns, name string, edit func(api.Object)) {
	w.t.Helper()
	live := w.get(resource, ns, name)
	if live == nil {
		w.t.Fatalf("no %s %s/%s", resource, ns, name)
	}
	obj := live.DeepCopyObject().(api.Object)
	edit(obj)
	bumpGeneration(obj, live)
	w.write(store.Update, obj)
}

func (w *world) write(verb store.Verb, obj api.Object) {
	w.t.Helper()
	if verb == store.Create {
		store.Stamp(obj, w.now)
	}
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(resource, ns, name string) {
	w.t.Helper()
	w.write(store.Delete, w.get(resource, ns, name))
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

func metaOf(ns, name string, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, Annotations: annotations}
}

// app is a Deployment with what this version runs.
const app = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
        ports:
        - {containerPort: 80}
`

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// storeText is an object as JSON.
func storeText(obj api.Object) string {
	text, err := json.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
