package cronjob

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile/reconciletest"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestARefusedJobIsToldOf: a Job that a quota has no room for is told of in an event
// and made when there is room.
func TestARefusedJobIsToldOf(t *testing.T) {
	now := noon
	st := reconciletest.OpenBounded(t)
	l := New(Config{Store: st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return now }})
	st.OnEvents(l.Handle)
	do := func(verb store.Verb, obj api.Object) {
		t.Helper()
		if _, err := st.Commit(t.Context(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
			t.Fatal(err)
		}
		storetest.Settle(t, st)
	}
	quota := reconciletest.Quota("default", "count/jobs.batch", "0")
	cron := newCron("* * * * *", nil)
	store.Stamp(quota, noon)
	store.Stamp(cron, noon)
	do(store.Create, quota)
	do(store.Create, cron)
	now = noon.Add(time.Minute)
	tries := 0
	look := func() {
		for range 5 {
			l.Wake(store.KeyOf(cron))
			for l.Step(t.Context()) {
				storetest.Settle(t, st)
				if tries++; tries > 100 {
					t.Fatal("the controller does not back off")
				}
			}
		}
	}
	look()
	told := ""
	for _, obj := range st.List(api.Events(), "default") {
		if e := obj.(*corev1.Event); e.Reason == "FailedCreate" {
			told += e.Message
		}
	}
	if jobs := st.List(api.Jobs(), "default"); len(jobs) != 0 || !strings.Contains(told, "Error creating job: ") || !strings.Contains(told, "exceeded quota: q, requested: count/jobs.batch=1") {
		t.Errorf("%d Jobs, the events say %q", len(jobs), told)
	}
	quota = st.Get(store.KeyOf(quota)).(*corev1.ResourceQuota).DeepCopy()
	quota.Status.Hard = corev1.ResourceList{"count/jobs.batch": resource.MustParse("3")}
	do(store.Update, quota)
	now = now.Add(10 * time.Second) // the next try, in the same slot
	look()
	if n := len(st.List(api.Jobs(), "default")); n != 1 {
		t.Errorf("%d Jobs, want 1", n)
	}
}
