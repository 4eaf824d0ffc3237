package endpointslice

import (
	"context"
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"pgregory.net/rapid"
)

// TestSlicesAreWhatIsWanted changes the pods of a Service at random. The slices have
// together what is wanted, each once, none too many; a second plan has nothing to do;
// and no change writes more slices than it must: those in which something changed, and
// as few more as what is new needs.
func TestSlicesAreWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		svc := service()
		pods, next, names := map[int]*corev1.Pod{}, 0, 0
		present := map[string]*discoveryv1.EndpointSlice{}
		observe := func() observed {
			o := observed{namespace: "default", name: "web", service: svc}
			for i := range next {
				if p := pods[i]; p != nil {
					o.pods = append(o.pods, p)
				}
			}
			for i := range names {
				if s := present[fmt.Sprintf("web-%05d", i)]; s != nil {
					o.slices = append(o.slices, s)
				}
			}
			return o
		}
		for range rapid.IntRange(1, 12).Draw(rt, "rounds") {
			switch rapid.SampledFrom([]string{"add", "add", "drop", "change", "stop"}).Draw(rt, "what") {
			case "add":
				for range rapid.IntRange(1, 180).Draw(rt, "many") {
					pods[next] = pod(next)
					if rapid.IntRange(0, 9).Draw(rt, "version") == 0 {
						pods[next].Spec.Containers[0].Ports[0].ContainerPort = 9090
					}
					next++
				}
			case "drop":
				from := rapid.IntRange(0, max(next-1, 0)).Draw(rt, "from")
				for i := from; i < from+rapid.IntRange(1, 120).Draw(rt, "many"); i++ {
					delete(pods, i)
				}
			case "change", "stop":
				for range rapid.IntRange(1, 5).Draw(rt, "many") {
					i := rapid.IntRange(0, max(next-1, 0)).Draw(rt, "pod")
					if p := pods[i]; p != nil {
						pods[i] = p.DeepCopy()
						unready(pods[i])
					}
				}
			}
			o := observe()
			groups := ofPods(svc, o.pods, nil)
			must := 0 // slices that must be written
			for _, s := range o.slices {
				changed := false
				for _, e := range s.Endpoints {
					w, ok := wantedIn(groups, s, e)
					changed = changed || !ok || !equality.Semantic.DeepEqual(w, e)
				}
				if changed {
					must++
				}
			}
			steps := plan(o)
			writes := 0
			for _, s := range steps {
				slice, ok := s.object.(*discoveryv1.EndpointSlice)
				if !ok {
					continue
				}
				writes++
				switch s.verb {
				case create:
					slice.Name = fmt.Sprintf("web-%05d", names)
					names++
					present[slice.Name] = slice
				case update:
					present[slice.Name] = slice
				case remove:
					delete(present, slice.Name)
				}
			}
			seen, fresh := map[identity]bool{}, 0
			for _, s := range observe().slices {
				if len(s.Endpoints) == 0 || len(s.Endpoints) > mostEndpoints {
					rt.Fatalf("%s has %d endpoints", s.Name, len(s.Endpoints))
				}
				for _, e := range s.Endpoints {
					w, ok := wantedIn(groups, s, e)
					if !ok || !equality.Semantic.DeepEqual(w, e) || seen[identityOf(&e)] {
						rt.Fatalf("%s has %s, wanted %v, again %v", s.Name, shown(e), ok, seen[identityOf(&e)])
					}
					seen[identityOf(&e)] = true
				}
			}
			all := 0
			for _, g := range groups {
				all += len(g.endpoints)
			}
			for _, s := range o.slices {
				for _, e := range s.Endpoints {
					if seen[identityOf(&e)] {
						fresh--
					}
				}
			}
			fresh += all
			if len(seen) != all {
				rt.Fatalf("%d endpoints in slices, %d wanted", len(seen), all)
			}
			// Each slice beyond those that must be written takes up something new; of two
			// ports, each may have one that is not filled up.
			if most := must + (fresh+mostEndpoints-1)/mostEndpoints + 2*len(groups); fresh == 0 && writes > must || writes > max(most, must+fresh) {
				rt.Fatalf("%d writes where %d must be and %d are new", writes, must, fresh)
			}
			if more := plan(withLegacy(observe(), steps)); len(more) > 0 {
				rt.Fatalf("the next plan has %d steps", len(more))
			}
		}
	})
}

// withLegacy is o with the Endpoints as steps leave them.
func withLegacy(o observed, steps []step) observed {
	o.endpoints = legacyOf(o.service, o.pods)
	for _, s := range steps {
		if e, ok := s.object.(*corev1.Endpoints); ok {
			o.endpoints = e
		}
	}
	return o
}

// wantedIn is the endpoint of the same identity that is wanted with the ports of s.
func wantedIn(groups []group, s *discoveryv1.EndpointSlice, e discoveryv1.Endpoint) (discoveryv1.Endpoint, bool) {
	for _, g := range groups {
		if portsKey(g.ports) != portsKey(s.Ports) {
			continue
		}
		for _, w := range g.endpoints {
			if identityOf(&w) == identityOf(&e) {
				return w, true
			}
		}
	}
	return discoveryv1.Endpoint{}, false
}

// TestLoop: the loop makes, keeps up and takes away, over a store, and what somebody
// else does to its slices is put right.
func TestLoop(t *testing.T) {
	ctx := context.Background()
	st := storetest.Open(t)
	n := 0
	loop := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) },
		Suffix: func() string { n++; return fmt.Sprintf("%05d", n) }})
	st.OnEvents(loop.Handle)
	settle := func() {
		t.Helper()
		for {
			more, err := st.Step(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if !loop.Step(ctx) && !more {
				return
			}
		}
	}
	do := func(verb store.Verb, objs ...api.Object) {
		t.Helper()
		tx := store.Txn{}
		for _, o := range objs {
			if verb == store.Create {
				store.Stamp(o, time.Time{})
			}
			tx.Ops = append(tx.Ops, store.Op{Verb: verb, Object: o})
		}
		if _, err := st.Commit(ctx, tx); err != nil {
			t.Fatal(err)
		}
		settle()
	}
	slices := func() (out []*discoveryv1.EndpointSlice) {
		for _, o := range st.List(api.EndpointSlices(), "default") {
			out = append(out, o.(*discoveryv1.EndpointSlice))
		}
		return out
	}
	settle()
	svc := service()
	do(store.Create, svc)
	if len(slices()) != 0 || st.Get(store.Key{GroupResource: api.Endpoints(), Namespace: "default", Name: "web"}) == nil {
		t.Error("a Service without pods has slices, or no Endpoints")
	}
	one := pod(1, unready)
	do(store.Create, one, pod(2))
	if s := slices(); len(s) != 1 || s[0].Name != "web-00001" || len(s[0].Endpoints) != 2 || *s[0].Endpoints[0].Conditions.Ready {
		t.Fatalf("slices %+v", s)
	}
	isReady(one, true)
	do(store.Update, one)
	if s := slices(); !*s[0].Endpoints[0].Conditions.Ready {
		t.Errorf("slices %+v", s)
	}
	// A pod that is labelled away is no endpoint any more.
	one.Labels = map[string]string{"app": "other"}
	do(store.Update, one)
	if s := slices(); len(s[0].Endpoints) != 1 {
		t.Errorf("slices %+v", s)
	}
	node := &corev1.Node{}
	node.Name, node.Labels = "n1", map[string]string{corev1.LabelTopologyZone: "east"}
	do(store.Create, node)
	if s := slices(); s[0].Endpoints[0].Zone == nil || *s[0].Endpoints[0].Zone != "east" {
		t.Errorf("slices %+v", s)
	}
	broken := slices()[0].DeepCopy()
	broken.Endpoints = nil
	do(store.Update, broken)
	if s := slices(); len(s) != 1 || len(s[0].Endpoints) != 1 {
		t.Errorf("slices %+v", s)
	}
	do(store.Delete, slices()[0])
	if s := slices(); len(s) != 1 || s[0].Name != "web-00002" {
		t.Errorf("slices %+v", s)
	}
	own := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
	own.Namespace, own.Name, own.Labels = "default", "own", map[string]string{discoveryv1.LabelServiceName: "web"}
	do(store.Create, own)
	do(store.Delete, st.Get(store.KeyOf(svc)).DeepCopyObject().(api.Object))
	if s := slices(); len(s) != 1 || s[0].Name != "own" {
		t.Errorf("slices of a Service that is gone: %+v", s)
	}
}

// TestMoreThanOneTransaction: a Service of 12,000 pods gets all its slices.
func TestMoreThanOneTransaction(t *testing.T) {
	ctx := context.Background()
	st := storetest.Open(t)
	n := 0
	c := &controller{Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return time.Time{} }, Suffix: func() string { n++; return fmt.Sprintf("%05d", n) }}}
	svc := service()
	if _, err := st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: svc}}}); err != nil {
		t.Fatal(err)
	}
	storetest.Settle(t, st)
	o := c.observe(store.KeyOf(svc))
	for i := range 12_000 {
		o.pods = append(o.pods, pod(i))
	}
	for round := 0; ; round++ {
		fresh := c.observe(store.KeyOf(svc))
		o.slices, o.endpoints, o.service = fresh.slices, fresh.endpoints, fresh.service
		err := c.apply(ctx, store.KeyOf(svc), o, plan(o))
		storetest.Settle(t, st)
		if err == nil {
			if round < 1 {
				t.Error("one transaction did it all: the test tries too little")
			}
			break
		}
		if round > 10 {
			t.Fatal(err)
		}
	}
	endpoints := 0
	for _, obj := range st.List(api.EndpointSlices(), "default") {
		endpoints += len(obj.(*discoveryv1.EndpointSlice).Endpoints)
	}
	if endpoints != 12_000 {
		t.Errorf("%d endpoints", endpoints)
	}
}
