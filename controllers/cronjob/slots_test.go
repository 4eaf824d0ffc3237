package cronjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

type counter struct {
	schedule
	calls int
}

func (c *counter) Next(t time.Time) time.Time {
	c.calls++
	return c.schedule.Next(t)
}

// The newest slot costs no more after ten years than after a day, whatever was
// missed: kubernetes/kubernetes#42649 gave up at 100 missed slots.
func TestManyMissedSlotsCostNoMore(t *testing.T) {
	for _, expr := range []string{"* * * * *", "*/5 * * * *", "0 3 * * 1", "30 2 29 2 *"} {
		for years := 1; years <= 10; years++ {
			s, err := parse(newCron(expr, nil))
			if err != nil {
				t.Fatal(err)
			}
			c := &counter{schedule: s}
			slot, ok := newest(c, noon.AddDate(-years, 0, 0), noon)
			if next := s.Next(slot); ok && !next.After(noon) {
				t.Errorf("%s: %s is not the newest, %s is due", expr, slot, next)
			}
			if c.calls > 32 {
				t.Errorf("%s after %d years: %d looks at the schedule", expr, years, c.calls)
			}
		}
	}
}

func BenchmarkTenYearsMissed(b *testing.B) {
	cron := newCron("* * * * *", func(c *batchv1.CronJob) { c.CreationTimestamp.Time = noon.AddDate(-10, 0, 0) })
	for b.Loop() {
		if got := summary(decide(observed{cron: cron}, noon)); got != "create 12:00 " {
			b.Fatal(got)
		}
	}
}

// Daylight saving: each case walks through the night minute by minute and lists
// the slots that are given out, in UTC.
func TestDaylightSaving(t *testing.T) {
	const berlin, york, howe = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
	for _, c := range []struct{ name, zone, expr, from, want string }{
		{"set forward, a slot in the hour that is left out is left out", berlin, "30 2 * * *", "2027-03-27T12:00:00Z", "29 00:30"},
		{"set forward, a slot before it comes", berlin, "30 1 * * *", "2027-03-27T12:00:00Z", "28 00:30, 28 23:30"},
		{"set forward, each hour has its slot", berlin, "30 0-4 * * *", "2027-03-27T22:00:00Z", "27 23:30, 28 00:30, 28 01:30, 28 02:30, 28 22:30, 28 23:30, 29 00:30, 29 01:30, 29 02:30"},
		{"set back, a slot in the hour that comes twice comes twice", berlin, "30 2 * * *", "2026-10-24T12:00:00Z", "25 00:30, 25 01:30, 26 01:30"},
		{"set back, one before it comes once", berlin, "30 1 * * *", "2026-10-24T12:00:00Z", "24 23:30, 26 00:30"},
		{"set back, one after it comes once", berlin, "30 3 * * *", "2026-10-24T12:00:00Z", "25 02:30, 26 02:30"},
		{"west of UTC, forward", york, "30 2 * * *", "2027-03-13T12:00:00Z", "15 06:30"},
		{"west of UTC, back", york, "30 1 * * *", "2026-10-31T12:00:00Z", "01 05:30, 01 06:30, 02 06:30"},
		{"by half an hour", howe, "45 1 * * *", "2027-04-02T20:00:00Z", "03 14:45, 03 15:15, 04 15:15"},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, err := time.Parse(time.RFC3339, c.from)
			if err != nil {
				t.Fatal(err)
			}
			cron := newCron(c.expr, func(j *batchv1.CronJob) { j.Spec.TimeZone, j.CreationTimestamp.Time = &c.zone, from })
			var got []string
			for at := from; at.Before(from.Add(48 * time.Hour)); at = at.Add(time.Minute) {
				p := decide(observed{cron: cron}, at)
				for _, s := range p.steps {
					got = append(got, s.slot.UTC().Format("02 15:04"))
					if !s.slot.Equal(at) {
						t.Errorf("slot %s at %s", s.slot, at)
					}
				}
				cron = p.cron
			}
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
}

// world is a store with one CronJob, and servers that lead one after another.
type world struct {
	t     *rapid.T
	tb    testing.TB
	st    *store.Store
	now   time.Time
	loops []*reconcile.Loop
	crash string // "", "before" or "after" the next write
	slots map[string]bool
}

var errDied = errors.New("the process died")

type controllerStore struct {
	*store.Store
	w *world
}

func (c controllerStore) Commit(ctx context.Context, t store.Txn) (int64, error) {
	w := c.w
	die := w.crash
	w.crash = ""
	if die == "before" {
		return 0, errDied
	}
	rev, err := c.Store.Commit(ctx, t)
	if err == nil {
		for _, op := range t.Ops {
			if j, ok := op.Object.(*batchv1.Job); ok && op.Verb == store.Create {
				w.made(j)
			}
		}
	}
	if die == "after" {
		return 0, errDied
	}
	return rev, err
}

// made holds a new Job against R5.
func (w *world) made(j *batchv1.Job) {
	slot := j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if w.slots[slot] {
		w.t.Fatalf("slot %s has a second Job", slot)
	}
	w.slots[slot] = true
	if at, err := time.Parse(time.RFC3339, slot); err != nil || at.After(w.now) {
		w.t.Fatalf("slot %q at %s: %v", slot, w.now, err)
	}
}

func (w *world) lead() {
	l := New(Config{Store: controllerStore{w.st, w}, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }})
	w.st.OnEvents(l.Handle)
	w.loops = append(w.loops, l)
}

func (w *world) do(verb store.Verb, obj api.Object) {
	if _, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}}); err != nil {
		w.t.Fatalf("%s: %v", verb, err)
	}
	storetest.Settle(w.tb, w.st)
}

// Servers take over from each other, also while the one before still works on what
// it saw, die before and after a write, look at a cache that is behind; the clock
// is set back and forth; Jobs end and are deleted by hand; the CronJob is deleted and
// made anew, and its status is lost: no slot ever has a second Job.
func TestR5_OneJobPerSlotAcrossFailoverRestartAndClockSteps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, tb: t, st: storetest.Open(t), now: noon, slots: map[string]bool{}}
		w.lead()
		cron := newCron(rapid.SampledFrom([]string{"* * * * *", "*/3 * * * *", "@every 95s", "0 * * * *"}).Draw(rt, "schedule"), func(c *batchv1.CronJob) {
			c.Spec.ConcurrencyPolicy = rapid.SampledFrom([]batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}).Draw(rt, "policy")
		})
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		for _, obj := range []api.Object{ns, cron} {
			store.Stamp(obj, noon)
			w.do(store.Create, obj)
		}
		jobs := func(f func(*batchv1.Job)) {
			storetest.Settle(t, w.st)
			list := w.st.List(api.Jobs(), "default")
			if len(list) > 0 {
				f(list[rapid.IntRange(0, len(list)-1).Draw(rt, "job")].DeepCopyObject().(*batchv1.Job))
			}
		}
		for range 150 {
			switch rapid.IntRange(0, 13).Draw(rt, "what") {
			case 0, 1, 2:
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 200).Draw(rt, "seconds")) * time.Second)
			case 3:
				w.now = w.now.Add(time.Duration(rapid.IntRange(-7200, 7200).Draw(rt, "step")) * time.Second)
			case 4:
				w.lead()
			case 5:
				w.crash = rapid.SampledFrom([]string{"before", "after"}).Draw(rt, "dies")
			case 6:
				jobs(func(j *batchv1.Job) { w.do(store.Delete, j) })
			case 7:
				jobs(func(j *batchv1.Job) {
					j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
					j.Status.CompletionTime = &metav1.Time{Time: w.now}
					w.do(store.Update, j)
				})
			case 8:
				storetest.Settle(t, w.st)
			case 9:
				storetest.Settle(t, w.st)
				w.do(store.Delete, w.st.Get(store.KeyOf(cron)))
				anew := cron.DeepCopy()
				anew.UID, anew.CreationTimestamp, anew.ResourceVersion, anew.Status = "", metav1.Time{}, "", batchv1.CronJobStatus{}
				store.Stamp(anew, w.now)
				w.do(store.Create, anew)
			case 10:
				storetest.Settle(t, w.st)
				lost := w.st.Get(store.KeyOf(cron)).DeepCopyObject().(*batchv1.CronJob)
				lost.Status = batchv1.CronJobStatus{}
				w.do(store.Update, lost)
			default:
				loop := w.loops[rapid.IntRange(max(0, len(w.loops)-2), len(w.loops)-1).Draw(rt, "server")]
				loop.Wake(store.KeyOf(cron))
				loop.Step(context.Background())
			}
		}
	})
}

// A CronJob that was held up for years makes one Job, for the newest slot, and
// goes on from there.
func TestR5_ALongOutageMakesOneJob(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, tb: t, st: storetest.Open(t), now: noon, slots: map[string]bool{}}
		w.lead()
		cron := newCron("* * * * *", nil)
		store.Stamp(cron, noon)
		w.do(store.Create, cron)
		w.now = noon.Add(time.Duration(rapid.IntRange(1, 5*365*24*60).Draw(rt, "minutes")) * time.Minute)
		for range 5 {
			w.loops[0].Wake(store.KeyOf(cron))
			w.loops[0].Step(context.Background())
			storetest.Settle(t, w.st)
		}
		want := fmt.Sprintf("tick-%d", w.now.Unix()/60)
		if list := w.st.List(api.Jobs(), "default"); len(list) != 1 || list[0].GetName() != want {
			rt.Fatalf("%d Jobs, want one, %s", len(list), want)
		}
	})
}
