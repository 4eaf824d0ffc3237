package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ranges of the tests: small, so that they fill up.
const (
	addresses = 5
	nodePorts = 4
)

var (
	errTaken = errors.New("is taken")
	errFull  = errors.New("nothing is free")
)

// allocate is the simplest allocator there is: the first that is free.
func allocate(svc, live *corev1.Service, holder func(api.Claim) string) error {
	had := map[api.Claim]bool{}
	if live != nil {
		for _, c := range api.Claims(live) {
			had[c] = true
		}
	}
	own := map[api.Claim]bool{}
	for _, c := range api.Claims(svc) {
		if by := holder(c); by != "" && !had[c] {
			return fmt.Errorf("%s: %s has it: %w", c, by, errTaken)
		}
		own[c] = true
	}
	first := func(n int, claim func(int) api.Claim) (api.Claim, error) {
		for i := range n {
			if c := claim(i); holder(c) == "" && !own[c] {
				own[c] = true
				return c, nil
			}
		}
		return api.Claim{}, errFull
	}
	if api.HasClusterIP(&svc.Spec) && svc.Spec.ClusterIP == "" {
		c, err := first(addresses, func(i int) api.Claim { return api.Claim{Address: fmt.Sprintf("10.0.0.%d", i+1)} })
		if err != nil {
			return err
		}
		svc.Spec.ClusterIP, svc.Spec.ClusterIPs = c.Address, []string{c.Address}
	}
	for i := range svc.Spec.Ports {
		if p := &svc.Spec.Ports[i]; p.NodePort == 0 && api.GetsNodePorts(&svc.Spec) {
			c, err := first(nodePorts, func(i int) api.Claim { return api.Claim{NodePort: api.FirstNodePort + int32(i)} })
			if err != nil {
				return err
			}
			p.NodePort = c.NodePort
		}
	}
	return nil
}

func service(name string, kind corev1.ServiceType, ports ...int32) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}}
	svc.Spec.Type = kind
	if kind == corev1.ServiceTypeExternalName {
		svc.Spec.ExternalName = "example.org"
	}
	for i, nodePort := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + i), Protocol: corev1.ProtocolTCP, NodePort: nodePort})
	}
	return svc
}

// allocating returns a loaded store that gives out addresses, and that somebody must
// Step.
func allocating(t testing.TB, kv store.KV) *store.Store {
	t.Helper()
	s := store.New(kv, store.Options{Seal: SealKey(), Allocate: allocate})
	if err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// has is what a Service has, for people.
func has(svc *corev1.Service) string {
	var out []string
	for _, c := range api.Claims(svc) {
		out = append(out, strings.TrimPrefix(c.String(), "10.0.0."))
	}
	return strings.Join(out, " ")
}

func lockOf(t testing.TB, s *store.Store) string {
	t.Helper()
	obj, _, err := s.GetAt(t.Context(), store.Key{GroupResource: api.Allocations(), Name: api.ServiceAllocation}, 0)
	if errors.Is(err, store.ErrNotFound) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return obj.GetResourceVersion()
}

// addressesGivenOut: what Services lack they get in the transaction that writes
// them, though the cache is never up to date here.
func addressesGivenOut(t *testing.T, kv store.KV) {
	s := allocating(t, kv)
	if lockOf(t, s) != "" {
		t.Error("there is a lock before anything was taken")
	}
	a, b := service("a", corev1.ServiceTypeClusterIP, 0), service("b", corev1.ServiceTypeNodePort, 0, 30003)
	rev := commit(t, s, create(a, config("default", "along", 1), b))
	if has(a) != "1" || has(b) != "2 30000 30003" || fmt.Sprint(rev) != a.ResourceVersion || lockOf(t, s) != a.ResourceVersion {
		t.Errorf("a has %s, b has %s, at %s; the lock is at %s", has(a), has(b), a.ResourceVersion, lockOf(t, s))
	}
	// An update that leaves out what was given keeps it, and takes nothing.
	again := service("b", corev1.ServiceTypeNodePort, 0, 30003)
	again.ResourceVersion = b.ResourceVersion
	commit(t, s, txn(store.Update, again))
	if has(again) != has(b) || lockOf(t, s) != a.ResourceVersion {
		t.Errorf("b has %s now, the lock is at %s", has(again), lockOf(t, s))
	}
	// What is refused is left as it came, and nothing of its transaction is done.
	c, d := service("c", corev1.ServiceTypeClusterIP), service("d", corev1.ServiceTypeNodePort, 30003)
	_, err := s.Commit(t.Context(), create(c, d))
	wants(t, err, errTaken, store.Key{})
	if err == nil || !strings.Contains(err.Error(), "30003: Service default/b has it") {
		t.Errorf("it is not said who has it: %v", err)
	}
	if has(c) != "" || has(d) != "30003" {
		t.Errorf("c has %s, d has %s", has(c), has(d))
	}
	// In one transaction, one may have what the other lets go, in any order.
	was := *again.DeepCopy()
	again.Spec.Ports = again.Spec.Ports[:1]
	d.Spec.ClusterIP = "10.0.0.1"
	commit(t, s, store.Txn{Ops: []store.Op{{Verb: store.Create, Object: d}, {Verb: store.Delete, Object: a}, {Verb: store.Update, Object: again}}})
	if has(d) != "1 30003" || has(again) != "2 30000" {
		t.Errorf("d has %s, b has %s", has(d), has(again))
	}
	// A change of the type gives back and takes.
	away := again.DeepCopy()
	away.Spec.Type, away.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	commit(t, s, txn(store.Update, away))
	if has(away) != "" {
		t.Errorf("b has %s", has(away))
	}
	commit(t, s, create(service("e", corev1.ServiceTypeNodePort, 30000)))
	back := away.DeepCopy()
	back.Spec.Type, back.Spec.ExternalName = corev1.ServiceTypeClusterIP, ""
	commit(t, s, txn(store.Update, back))
	if has(back) == "" {
		t.Error("b got nothing back")
	}
	// A stale update is a conflict and no refusal, whatever it names.
	was.Spec.Ports[0].NodePort = 30000
	_, err = s.Commit(t.Context(), txn(store.Update, &was))
	wants(t, err, store.ErrConflict, store.KeyOf(&was))
	// A rehearsal fills and writes nothing.
	f := service("f", corev1.ServiceTypeNodePort, 0)
	before, err := s.Current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Rehearse(t.Context(), store.Op{Verb: store.Create, Object: f}); err != nil || has(f) == "" {
		t.Errorf("the rehearsal gave %s: %v", has(f), err)
	}
	if after, err := s.Current(t.Context()); err != nil || after != before {
		t.Errorf("the rehearsal wrote: %d, %d, %v", before, after, err)
	}
}

// addressesOfOthers: two servers whose caches stand still never give out the same,
// and none refuses what the other let go.
func addressesOfOthers(t *testing.T, kv store.KV) {
	one, two := allocating(t, kv), allocating(t, kv)
	a, b := service("a", corev1.ServiceTypeNodePort, 0), service("b", corev1.ServiceTypeNodePort, 0)
	commit(t, one, create(a))
	commit(t, two, create(b))
	if has(a) == has(b) || has(b) == "" {
		t.Errorf("a has %s, b has %s", has(a), has(b))
	}
	c := service("c", corev1.ServiceTypeNodePort, a.Spec.Ports[0].NodePort)
	_, err := two.Commit(t.Context(), create(c))
	wants(t, err, errTaken, store.Key{})
	commit(t, one, txn(store.Delete, a))
	commit(t, two, create(c))
	if has(c) != has(a) {
		t.Errorf("c has %s, a had %s", has(c), has(a))
	}
	// What one does while the other has seen none of it, the late events included.
	commit(t, one, create(service("a", corev1.ServiceTypeClusterIP)))
	settle(t, two)
	settle(t, one)
	for i := range addresses - 3 {
		commit(t, two, create(service(fmt.Sprint("more", i), corev1.ServiceTypeClusterIP)))
	}
	_, err = one.Commit(t.Context(), create(service("too-many", corev1.ServiceTypeClusterIP)))
	wants(t, err, errFull, store.Key{})
	checkClaims(t, t.Context(), one)
}

// fataler is a test of either kind.
type fataler interface {
	Fatalf(format string, args ...any)
}

// checkClaims reads every Service from the backend: none may have what another has,
// none may lack what it needs. It returns how many claims are taken.
func checkClaims(t fataler, ctx context.Context, s *store.Store) (taken map[api.Claim]string) {
	page, err := s.ListAt(ctx, api.Services(), "", 0, 0, "")
	if err != nil {
		t.Fatalf("%v", err)
	}
	taken = map[api.Claim]string{}
	for _, obj := range page.Objects {
		svc := obj.(*corev1.Service)
		if api.HasClusterIP(&svc.Spec) == (svc.Spec.ClusterIP == "") {
			t.Fatalf("%s is of type %s and has %q", svc.Name, svc.Spec.Type, has(svc))
		}
		for _, p := range svc.Spec.Ports {
			if api.GetsNodePorts(&svc.Spec) && p.NodePort == 0 {
				t.Fatalf("%s is of type %s and has %q", svc.Name, svc.Spec.Type, has(svc))
			}
		}
		for _, c := range api.Claims(svc) {
			if by := taken[c]; by != "" {
				t.Fatalf("both %s and %s have %s", by, svc.Name, c)
			}
			taken[c] = svc.Name
		}
	}
	return taken
}

// AddressesCostNothing: a server that alone gives out addresses reads nothing for it
// from the backend, which is asked through fail, though its cache stands still.
func AddressesCostNothing(t *testing.T, kv store.KV, fail func(func(op string) error)) {
	s := allocating(t, kv)
	fail(func(op string) error {
		if !strings.HasPrefix(op, "commit") {
			return fmt.Errorf("%s: there is no need to ask", op)
		}
		return nil
	})
	var all []api.Object
	for i := range addresses {
		svc := service(fmt.Sprint("s", i), corev1.ServiceTypeClusterIP)
		commit(t, s, create(svc))
		all = append(all, svc)
	}
	commit(t, s, txn(store.Delete, all[0]))
	commit(t, s, create(service("again", corev1.ServiceTypeClusterIP)))

	// Who has read everything anew is not told by late events what is no longer so.
	fail(nil)
	commit(t, s, txn(store.Delete, all[1], all[2]))
	late := allocating(t, kv)
	gone := service("gone", corev1.ServiceTypeClusterIP)
	gone.Spec.ClusterIP = all[2].(*corev1.Service).Spec.ClusterIP
	commit(t, s, create(gone))
	commit(t, s, txn(store.Delete, gone))
	commit(t, late, create(service("new", corev1.ServiceTypeClusterIP))) // loses the lock first
	if _, err := late.Step(t.Context()); err != nil {                    // the revision that it loaded
		t.Fatal(err)
	}
	fail(func(op string) error {
		if op == "range" {
			return errors.New("range: there is no need to ask")
		}
		return nil
	})
	for range 3 {
		if _, err := late.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := late.Rehearse(t.Context(), store.Op{Verb: store.Create, Object: service("next", corev1.ServiceTypeClusterIP)}); err != nil {
			t.Error(err)
		}
	}
}
