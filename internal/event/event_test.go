package event_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/event"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type fixture struct {
	*testing.T
	st  *store.Store
	now time.Time
	rec *event.Recorder
}

func open(t *testing.T) *fixture {
	f := &fixture{T: t, st: storetest.Open(t), now: start}
	f.rec = &event.Recorder{Store: f.st, Now: func() time.Time { return f.now }, Component: "deployment-controller"}
	return f
}

func (f *fixture) events() []*corev1.Event {
	storetest.Settle(f.T, f.st)
	var out []*corev1.Event
	for _, o := range f.st.List(api.Events(), "") {
		out = append(out, o.(*corev1.Event))
	}
	return out
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"}}
}

func TestRepeatsCoalesce(t *testing.T) {
	f := open(t)
	for range 3 {
		f.rec.Event(t.Context(), pod("web"), corev1.EventTypeNormal, "Killing", "Stopping container app")
		f.now = f.now.Add(time.Second)
		f.events()
	}
	f.rec.Event(t.Context(), pod("web"), corev1.EventTypeNormal, "Killing", "Stopping container sidecar")
	f.rec.Event(t.Context(), pod("other"), corev1.EventTypeNormal, "Killing", "Stopping container app")
	got := f.events()
	if len(got) != 3 {
		t.Fatalf("%d events, want 3", len(got))
	}
	for _, e := range got {
		if e.InvolvedObject.Name == "web" && e.Message == "Stopping container app" {
			if e.Count != 3 || !e.FirstTimestamp.Time.Equal(start) || !e.LastTimestamp.Time.Equal(start.Add(2*time.Second)) {
				t.Errorf("count %d from %v to %v", e.Count, e.FirstTimestamp, e.LastTimestamp)
			}
			continue
		}
		if e.Count != 1 {
			t.Errorf("%s: count %d, want 1", e.Name, e.Count)
		}
	}
}

func TestEventIsAsKubernetesHasIt(t *testing.T) {
	f := open(t)
	f.rec.Event(t.Context(), pod("web"), corev1.EventTypeWarning, "BackOff", "Back-off restarting")
	e := f.events()[0]
	want := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "shop", Name: "web", UID: "uid-web", ResourceVersion: "7"}
	if e.InvolvedObject != want {
		t.Errorf("involvedObject %+v, want %+v", e.InvolvedObject, want)
	}
	if e.Namespace != "shop" || e.Source.Component != "deployment-controller" || e.ReportingController != "deployment-controller" ||
		e.Type != "Warning" || e.Reason != "BackOff" || !strings.HasPrefix(e.Name, "web.") || e.UID == "" {
		t.Errorf("%+v", e)
	}
}

func TestEventOfAClusterScopedObjectIsInDefault(t *testing.T) {
	f := open(t)
	f.rec.Event(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}, corev1.EventTypeNormal, "NodeReady", "ready")
	if e := f.events()[0]; e.Namespace != "default" || e.InvolvedObject.Kind != "Node" {
		t.Errorf("namespace %q, kind %q", e.Namespace, e.InvolvedObject.Kind)
	}
}

func TestAStaleCacheCostsNoEvent(t *testing.T) {
	f := open(t)
	for range 3 { // the cache is not stepped: the second finds the key taken
		f.rec.Event(t.Context(), pod("web"), corev1.EventTypeNormal, "Pulled", "done")
	}
	if got := f.events(); len(got) != 1 {
		t.Fatalf("%d events, want 1", len(got))
	}
}

func TestABurstIsBounded(t *testing.T) {
	f := open(t)
	for i := range 100 {
		f.rec.Event(t.Context(), pod("web"), corev1.EventTypeNormal, "Created", fmt.Sprintf("number %d", i))
	}
	if n := len(f.events()); n != 25 {
		t.Errorf("%d events of one object, want 25", n)
	}
	f.now = f.now.Add(5 * time.Minute)
	f.rec.Event(t.Context(), pod("web"), corev1.EventTypeNormal, "Created", "later")
	f.rec.Event(t.Context(), pod("web"), corev1.EventTypeNormal, "Created", "later still")
	if n := len(f.events()); n != 26 {
		t.Errorf("%d events after five minutes, want 26", n)
	}
	for i := range 10_000 {
		f.rec.Op(pod(fmt.Sprintf("p%d", i)), corev1.EventTypeNormal, "Created", "x")
	}
	if ops := f.rec.Op(pod("one-more"), corev1.EventTypeNormal, "Created", "x"); ops != nil {
		t.Error("10,000 events at once are not bounded")
	}
}

func TestLongNamesAndMessagesStayValid(t *testing.T) {
	f := open(t)
	f.rec.Event(t.Context(), pod(strings.Repeat("a", 253)), corev1.EventTypeNormal, "Created", strings.Repeat("é", 2000))
	e := f.events()[0]
	if len(e.Name) > 253 || len(e.Message) > 1024 || !strings.HasSuffix(e.Message, "é...") {
		t.Errorf("name of %d, message of %d bytes ending in %q", len(e.Name), len(e.Message), e.Message[len(e.Message)-8:])
	}
}

func TestANilRecorderRecordsNothing(t *testing.T) {
	var r *event.Recorder
	r.Event(context.Background(), pod("web"), corev1.EventTypeNormal, "Created", "x")
	if ops := r.Op(pod("web"), corev1.EventTypeNormal, "Created", "x"); ops != nil {
		t.Error(ops)
	}
}
