package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// mute is a backend that now and then does a commit and does not say so.
type mute struct {
	store.KV
	next bool // the next commit's answer is lost
}

func (m *mute) Commit(ctx context.Context, compares []store.Compare, then []store.Write) (store.Committed, error) {
	out, err := m.KV.Commit(ctx, compares, then)
	if m.next && err == nil {
		m.next = false
		return store.Committed{}, fmt.Errorf("the answer is lost: %w", store.ErrUnavailable)
	}
	return out, err
}

// Addresses runs random programs of three servers on one backend: they create,
// change and delete Services, hear of each other late, and lose answers. No address
// is ever two Services', and whoever asks gets one if and only if one is free. open
// returns an empty backend. It takes some hundred programs to find a state that is
// wrong in one place, so each of the rounds makes as many as rapid does by itself.
func Addresses(t *testing.T, rounds int, open func(testing.TB) store.KV) {
	for range rounds {
		rapid.Check(t, func(r *rapid.T) { oneProgram(t, r, open(t)) })
	}
}

// oneProgram runs one of them.
func oneProgram(t *testing.T, r *rapid.T, kv store.KV) {
	m := &addressModel{ctx: t.Context(), kv: &mute{KV: kv}}
	for range 3 {
		m.servers = append(m.servers, allocating(t, m.kv))
	}
	r.Repeat(map[string]func(*rapid.T){
		"":       func(r *rapid.T) { checkClaims(r, m.ctx, m.servers[0]) },
		"step":   m.step,
		"create": m.create,
		"update": m.update,
		"delete": m.delete,
		"mute":   func(*rapid.T) { m.kv.next = true },
	})
}

type addressModel struct {
	ctx     context.Context
	kv      *mute
	servers []*store.Store
}

func (m *addressModel) server(r *rapid.T) *store.Store {
	return m.servers[rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2}).Draw(r, "server")]
}

func (m *addressModel) step(r *rapid.T) {
	s := m.server(r)
	for range rapid.IntRange(1, 3).Draw(r, "steps") {
		if _, err := s.Step(m.ctx); err != nil {
			r.Fatal(err)
		}
	}
}

// draw makes a Service, with what it names.
func draw(r *rapid.T, name string) *corev1.Service {
	kind := rapid.SampledFrom([]corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName}).Draw(r, "type")
	var ports []int32
	for range rapid.IntRange(0, 2).Draw(r, "ports") {
		port := int32(0)
		if kind == corev1.ServiceTypeNodePort || kind == corev1.ServiceTypeLoadBalancer {
			port = rapid.SampledFrom([]int32{0, 0, 30000, 30001}).Draw(r, "node port")
		}
		if len(ports) > 0 && port == ports[0] {
			port = 0
		}
		ports = append(ports, port)
	}
	return service(name, kind, ports...)
}

// wanted says whether svc can be had in place of live: what it names is free or its
// own, and enough is free for the rest.
func (m *addressModel) wanted(r *rapid.T, svc *corev1.Service, live *corev1.Service) bool {
	taken := checkClaims(r, m.ctx, m.servers[0])
	svc = svc.DeepCopy()
	if live != nil {
		for _, c := range api.Claims(live) {
			delete(taken, c)
		}
	}
	if errs := api.PrepareService(svc, live); len(errs) > 0 {
		return false
	}
	for _, c := range api.Claims(svc) {
		if taken[c] != "" {
			return false
		}
	}
	return allocate(svc, live, func(c api.Claim) string { return taken[c] }) == nil
}

// commit checks the answer: a refusal must be right.
func (m *addressModel) commit(r *rapid.T, s *store.Store, op store.Op, can bool) {
	_, err := s.Commit(m.ctx, store.Txn{Ops: []store.Op{op}})
	switch {
	case err == nil && !can:
		r.Fatalf("%s of %s was not refused", op.Verb, op.Object.GetName())
	case errors.Is(err, errTaken), errors.Is(err, errFull):
		if can {
			r.Fatalf("%s of %s: %v, which is not so", op.Verb, op.Object.GetName(), err)
		}
	case err == nil, errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
	default:
		r.Fatal(err)
	}
}

func (m *addressModel) create(r *rapid.T) {
	svc := draw(r, rapid.StringMatching("[a-d]").Draw(r, "name"))
	m.commit(r, m.server(r), store.Op{Verb: store.Create, Object: svc}, m.wanted(r, svc, nil))
}

// pick is one of the Services as they are, or as a server still sees them.
func (m *addressModel) pick(r *rapid.T, s *store.Store) (svc *corev1.Service, newest bool) {
	known := s.List(api.Services(), "")
	if len(known) == 0 || rapid.Bool().Draw(r, "newest") {
		page, err := s.ListAt(m.ctx, api.Services(), "", 0, 0, "")
		if err != nil {
			r.Fatal(err)
		}
		known, newest = page.Objects, true
	}
	if len(known) == 0 {
		r.Skip("there is none")
	}
	svc = rapid.SampledFrom(known).Draw(r, "service").(*corev1.Service)
	if !newest {
		now, _, err := s.GetAt(m.ctx, store.KeyOf(svc), 0)
		newest = err == nil && now.GetResourceVersion() == svc.ResourceVersion
	}
	return svc, newest
}

func (m *addressModel) update(r *rapid.T) {
	s := m.server(r)
	live, newest := m.pick(r, s)
	next := draw(r, live.Name)
	next.ResourceVersion = live.ResourceVersion
	if rapid.Bool().Draw(r, "keeps its address") {
		next.Spec.ClusterIP, next.Spec.ClusterIPs = live.Spec.ClusterIP, live.Spec.ClusterIPs
		if next.Spec.Type == corev1.ServiceTypeExternalName {
			next.Spec.ClusterIP, next.Spec.ClusterIPs = "", nil
		}
	}
	if !newest {
		before := checkClaims(r, m.ctx, s)
		if _, err := s.Commit(m.ctx, store.Txn{Ops: []store.Op{{Verb: store.Update, Object: next}}}); err == nil {
			r.Fatalf("an update of %s that is older than it was done", live.Name)
		}
		if after := checkClaims(r, m.ctx, s); fmt.Sprint(before) != fmt.Sprint(after) {
			r.Fatalf("a refused update changed %v to %v", before, after)
		}
		return
	}
	m.commit(r, s, store.Op{Verb: store.Update, Object: next}, m.wanted(r, next, live))
}

func (m *addressModel) delete(r *rapid.T) {
	s := m.server(r)
	live, newest := m.pick(r, s)
	m.commit(r, s, store.Op{Verb: store.Delete, Object: live.DeepCopy()}, newest)
}

// addressesAtOnce: four servers take and give back at the same time. Of every
// revision that the backend ever had, no two Services have the same.
func addressesAtOnce(t *testing.T, kv store.KV) {
	const servers, rounds = 4, 30
	var all sync.WaitGroup
	for n := range servers {
		s := running(t, kv, store.Options{Allocate: allocate})
		all.Go(func() {
			for i := range rounds {
				kind := corev1.ServiceTypeNodePort
				if i%3 == 0 {
					kind = corev1.ServiceTypeClusterIP
				}
				svc := service(fmt.Sprintf("s%d-%d", n, i%2), kind, 0)
				if i%5 == 0 && kind == corev1.ServiceTypeNodePort {
					svc.Spec.Ports[0].NodePort = 30001
				}
				_, err := s.Commit(t.Context(), create(svc))
				if errors.Is(err, errTaken) || errors.Is(err, errFull) {
					continue
				}
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				svc.Spec.Type = corev1.ServiceTypeNodePort
				if _, err := s.Commit(t.Context(), txn(store.Update, svc)); err != nil && !errors.Is(err, errFull) {
					t.Errorf("update: %v", err)
					return
				}
				if _, err := s.Commit(t.Context(), txn(store.Delete, svc)); err != nil {
					t.Errorf("delete: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	s := allocating(t, kv)
	if left := checkClaims(t, t.Context(), s); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	noDoubleEver(t, kv, s)
	// Nothing leaked: everything can be taken now.
	for i := range nodePorts {
		commit(t, s, create(service(fmt.Sprint("all", i), corev1.ServiceTypeNodePort, 0)))
	}
	if taken := checkClaims(t, t.Context(), s); len(taken) != 2*nodePorts {
		t.Errorf("taken: %v", taken)
	}
}

// noDoubleEver replays the backend's history.
func noDoubleEver(t *testing.T, kv store.KV, s *store.Store) {
	t.Helper()
	now, err := s.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), Patience)
	defer stop()
	batches, err := kv.Watch(ctx, store.ResourcePrefix(api.Services()), 1)
	if err != nil {
		t.Fatal(err)
	}
	live, taken, seen := map[string][]api.Claim{}, map[api.Claim]string{}, 0
	for b := range batches {
		if b.Err != nil {
			t.Fatal(b.Err)
		}
		for _, c := range b.Changes {
			for _, claim := range live[c.Entry.Key] {
				delete(taken, claim)
			}
			delete(live, c.Entry.Key)
		}
		for _, c := range b.Changes {
			if c.Deleted {
				continue
			}
			seen++
			key, _, _ := store.ParsePath(c.Entry.Key)
			obj, _, err := s.GetAt(ctx, key, b.Revision)
			if err != nil {
				t.Fatal(err)
			}
			for _, claim := range api.Claims(obj.(*corev1.Service)) {
				if by := taken[claim]; by != "" {
					t.Fatalf("at revision %d both %s and %s have %s", b.Revision, by, c.Entry.Key, claim)
				}
				taken[claim] = c.Entry.Key
				live[c.Entry.Key] = append(live[c.Entry.Key], claim)
			}
		}
		if b.Revision >= now {
			break
		}
		if len(b.Changes) > 0 {
			if err := kv.Progress(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d writes were seen", seen)
	}
}
