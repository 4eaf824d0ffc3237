package kubernetes

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestServiceIsKept: it is made once its namespace is there, follows the server, and
// what somebody does to it is put right.
func TestServiceIsKept(t *testing.T) {
	ctx := context.Background()
	services := admission.DefaultServices()
	st := store.New(memory.New(), store.Options{Seal: storetest.SealKey(), Allocate: services.Allocate})
	server := netip.MustParseAddrPort("192.0.2.1:6443")
	now := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	loop := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Address: services.Kubernetes(), Server: func() netip.AddrPort { return server }, Now: now})
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
	do := func(verb store.Verb, obj api.Object) {
		t.Helper()
		if _, err := st.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
		settle()
	}
	get := func() (*corev1.Service, *corev1.Endpoints, *discoveryv1.EndpointSlice) {
		svc, _ := st.Get(key(api.Services())).(*corev1.Service)
		endpoints, _ := st.Get(key(api.Endpoints())).(*corev1.Endpoints)
		slice, _ := st.Get(key(api.EndpointSlices())).(*discoveryv1.EndpointSlice)
		if svc == nil || endpoints == nil || slice == nil {
			t.Fatal("they are not all there")
		}
		for _, obj := range []api.Object{svc, endpoints, slice} {
			if errs := api.Validate(obj); len(errs) > 0 {
				t.Errorf("%T: %v", obj, errs)
			}
		}
		return svc, endpoints, slice
	}
	settle()
	if st.Get(key(api.Services())) != nil {
		t.Error("it is made in no namespace")
	}
	do(store.Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	svc, endpoints, slice := get()
	if svc.Spec.ClusterIP != "10.43.0.1" || svc.Spec.Ports[0].Port != 443 || svc.Spec.Ports[0].TargetPort.IntVal != 6443 || *svc.Spec.IPFamilyPolicy != "SingleStack" {
		t.Errorf("%+v", svc.Spec)
	}
	if endpoints.Subsets[0].Addresses[0].IP != "192.0.2.1" || slice.Endpoints[0].Addresses[0] != "192.0.2.1" || *slice.Ports[0].Port != 6443 {
		t.Errorf("%+v, %+v", endpoints.Subsets, slice)
	}
	changed := svc.DeepCopy()
	changed.Spec.Selector = map[string]string{"mine": "now"}
	do(store.Update, changed)
	do(store.Delete, slice)
	if svc, _, _ := get(); svc.Spec.Selector != nil {
		t.Errorf("%+v", svc.Spec)
	}
	before := st.Revision()
	loop.Wake(key(api.Services()))
	settle()
	if st.Revision() != before {
		t.Error("it is written though nothing changed")
	}
	server = netip.AddrPort{}
	loop.Wake(key(api.Services()))
	settle()
	if _, endpoints, slice := get(); len(endpoints.Subsets) != 0 || len(slice.Endpoints) != 0 {
		t.Errorf("%+v, %+v", endpoints.Subsets, slice)
	}
}

func TestAnotherRange(t *testing.T) {
	o := observed{address: netip.MustParseAddr("10.44.0.1"), service: &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.43.0.1"}}}
	if steps := plan(o); len(steps) != 1 || steps[0].verb != store.Delete || steps[0].object != api.Object(o.service) {
		t.Errorf("%+v", steps)
	}
}
