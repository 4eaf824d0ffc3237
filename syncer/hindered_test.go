package syncer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// TestWhatHindersACommitIsTold: the reason is in the status and in the output of the
// push, and goes when the commit is applied.
func TestWhatHindersACommitIsTold(t *testing.T) {
	w := newWorld(t)
	c1 := w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1")})
	w.push(c1)
	tries, told := 0, 0
	w.deny = func(txn store.Txn) error {
		for _, op := range txn.Ops {
			if store.KeyOf(op.Object).GroupResource == api.ConfigMaps() {
				tries++
				return fmt.Errorf("the disk\nburns, try %d", tries)
			}
		}
		told++
		return nil
	}
	c2 := w.repo.add("c2", "c1", map[string]string{"a.yaml": configMap("a", "2")})
	w.push(c2)
	if tries < 5 || told != 1 {
		t.Errorf("told %d times in %d tries within seconds, whose texts differ", told, tries)
	}
	st := w.status()
	const want = `could not be applied, and is tried again: the disk\nburns, try 1`
	if st.Applied != c1 || st.Head != c2 || st.Refused != "" || st.Message != want {
		t.Fatalf("status %+v", st)
	}
	if r := w.s.Status(); r.State != Progressing || r.Reason != "commit c20000000000 is not applied yet: "+want {
		t.Errorf("report: %s %s", r.State, r.Reason)
	}
	var out strings.Builder
	f := follower{s: w.s, commit: c2, w: &out, start: w.now, shown: map[store.Key]string{}, settled: map[store.Key]bool{}}
	if done, err := f.look(t.Context()); done || err != nil || !strings.HasSuffix(out.String(), "\n"+want+"\n") {
		t.Errorf("the push shows %q, %v %v", out.String(), done, err)
	}
	w.now = w.now.Add(2 * time.Minute)
	w.settle()
	if st := w.status(); told != 2 || st.Message == want || !strings.HasPrefix(st.Message, strings.TrimSuffix(want, "1")) {
		t.Errorf("told %d times: %s", told, st.Message)
	}
	w.deny = nil
	w.now = w.now.Add(2 * time.Minute)
	w.settle()
	if st := w.status(); st.Applied != c2 || st.Message != "" {
		t.Errorf("status %+v", st)
	}
	// That a commit cannot be judged is told, too, and the next one takes its place.
	w.repo.fail = fmt.Errorf("no such pack")
	w.push(w.repo.add("c3", "c2", map[string]string{"a.yaml": configMap("a", "3")}))
	if st := w.status(); st.Applied != c2 || st.Head != commitID("c3") || !strings.HasSuffix(st.Message, "no such pack") {
		t.Errorf("status %+v", st)
	}
	w.repo.fail = nil
	w.push(w.repo.add("c4", "c3", map[string]string{"a.yaml": configMap("a", "4")}))
	if st := w.status(); st.Applied != commitID("c4") || st.Message != "" {
		t.Errorf("status %+v", st)
	}
}
