package cronjob

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lives is a store in which one CronJob has several lives.
type lives struct {
	*testing.T
	st   *store.Store
	loop *reconcile.Loop
	now  time.Time
}

func newLives(t *testing.T) *lives {
	l := &lives{T: t, st: storetest.Open(t), now: noon}
	l.loop = New(Config{Store: l.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return l.now }})
	l.st.OnEvents(l.loop.Handle)
	return l
}

func (l *lives) do(verb store.Verb, obj api.Object) {
	l.Helper()
	if verb == store.Create {
		obj.SetUID("")
		obj.SetCreationTimestamp(metav1.Time{})
		store.Stamp(obj, l.now)
	}
	if _, err := l.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		l.Fatal(err)
	}
	storetest.Settle(l, l.st)
}

func (l *lives) cron() *batchv1.CronJob {
	return l.st.Get(store.Key{GroupResource: api.CronJobs(), Namespace: "default", Name: "tick"}).DeepCopyObject().(*batchv1.CronJob)
}

// work lets the controller look at the CronJob and returns the Jobs that are there,
// by their slots.
func (l *lives) work() string {
	l.Helper()
	for range 3 {
		l.loop.Wake(store.Key{GroupResource: api.CronJobs(), Namespace: "default", Name: "tick"})
		for l.loop.Step(context.Background()) {
			storetest.Settle(l, l.st)
		}
	}
	var out []string
	for _, obj := range l.st.List(api.Jobs(), "default") {
		out = append(out, obj.GetAnnotations()[batchv1.CronJobScheduledTimestampAnnotation][5:16])
	}
	return strings.Join(out, " ")
}

// clear deletes every Job, as garbage collection and a ttl do.
func (l *lives) clear() {
	l.Helper()
	for _, obj := range l.st.List(api.Jobs(), "default") {
		l.do(store.Delete, obj)
	}
}

// TestR5_ASlotStaysTakenWhenTheCronJobIsMadeAnew: deleted with its Jobs, and declared
// again while the clock is set back.
func TestR5_ASlotStaysTakenWhenTheCronJobIsMadeAnew(t *testing.T) {
	l := newLives(t)
	l.do(store.Create, newCron("*/5 * * * *", nil))
	l.now = noon.Add(5 * time.Minute)
	if got := l.work(); got != "11-30T12:05" {
		t.Fatalf("the first life has %q", got)
	}
	l.do(store.Delete, l.cron())
	l.clear()
	l.now = noon.Add(time.Minute)
	l.do(store.Create, newCron("*/5 * * * *", nil))
	l.now = noon.Add(5*time.Minute + time.Second)
	if got := l.work(); got != "" {
		t.Fatalf("12:05 has a second Job: %q", got)
	}
	l.now = noon.Add(10 * time.Minute)
	if got := l.work(); got != "11-30T12:10" {
		t.Errorf("the next slot: %q", got)
	}
}

// TestR5_ASlotStaysTakenWhenTheStatusIsLost: somebody takes the status away, or puts
// back one that is old, after the slot's Job is gone.
func TestR5_ASlotStaysTakenWhenTheStatusIsLost(t *testing.T) {
	for name, last := range map[string]*metav1.Time{"lost": nil, "old": {Time: noon}} {
		t.Run(name, func(t *testing.T) {
			l := newLives(t)
			l.do(store.Create, newCron("*/5 * * * *", nil))
			l.now = noon.Add(5 * time.Minute)
			l.work()
			l.clear()
			cron := l.cron()
			cron.Status.LastScheduleTime = last
			l.do(store.Update, cron)
			if got := l.work(); got != "" {
				t.Fatalf("12:05 has a second Job: %q", got)
			}
			if last := l.cron().Status.LastScheduleTime; last == nil || !last.Time.Equal(l.now) {
				t.Errorf("the last slot is %v", last)
			}
		})
	}
}

// A clock that was wrong by years and is put right does not silence a CronJob that is
// then made anew: only the slots that had a Job are taken.
func TestR5_ARecordOfAWrongClockTakesOnlyItsSlots(t *testing.T) {
	l := newLives(t)
	l.do(store.Create, newCron("*/5 * * * *", nil))
	l.now = noon.Add(5 * time.Minute)
	l.work()
	l.now = noon.AddDate(4, 0, 0)
	if got := l.work(); got != "11-30T12:05 11-30T12:00" {
		t.Fatalf("with the wrong clock: %q", got)
	}
	l.do(store.Delete, l.cron())
	l.clear()
	l.now = noon.Add(7 * time.Minute)
	l.do(store.Create, newCron("*/5 * * * *", nil))
	l.now = noon.Add(10 * time.Minute)
	if got := l.work(); got != "11-30T12:10" {
		t.Fatalf("with the right clock: %q", got)
	}
	l.clear()
	l.now = noon.AddDate(4, 0, 0)
	if got := l.work(); got != "" {
		t.Errorf("with the wrong clock again: %q", got)
	}
}

// Records of CronJobs that are gone are bounded by their number, and one of a CronJob
// that is there never goes.
func TestRecordsOfGoneCronJobsAreBounded(t *testing.T) {
	var records []api.Object
	for i := range keptGone + 5 {
		r := &api.SlotRecord{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}, CronJob: api.ObjectRef{Name: fmt.Sprint(i)}}
		r.Take(noon.Add(time.Duration(i) * time.Minute))
		records = append(records, r)
	}
	var names []string
	for _, r := range tooMany(records, func(ref api.ObjectRef) bool { return ref.Name == "1" }) {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "0 2 3 4" {
		t.Errorf("%q go", got)
	}

	l := newLives(t)
	for _, r := range records {
		r.(*api.SlotRecord).CronJob.Namespace = "default"
		l.do(store.Create, r)
	}
	l.loop.Wake(sweepKey())
	for l.loop.Step(t.Context()) {
		storetest.Settle(t, l.st)
	}
	if n := len(l.st.List(api.SlotRecords(), "")); n != keptGone {
		t.Errorf("%d records are left", n)
	}
}
