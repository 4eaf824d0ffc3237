package cronjob

import (
	"fmt"
	"testing"
	"time"

	"headway.dev/headway/api"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newCron(expr string, change func(*batchv1.CronJob)) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick", UID: "u-1", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	c.Spec.Schedule = expr
	c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	api.Scheme().Default(c)
	if change != nil {
		change(c)
	}
	return c
}

func last(t time.Time) func(*batchv1.CronJob) {
	return func(c *batchv1.CronJob) { c.Status.LastScheduleTime = &metav1.Time{Time: t} }
}

func jobOf(n int, outcome batchv1.JobConditionType) *batchv1.Job {
	at := metav1.NewTime(noon.Add(time.Duration(n-100) * time.Minute))
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("tick-%d", n), CreationTimestamp: at}}
	j.Status.StartTime = &at
	if outcome != "" {
		j.Status.Conditions = []batchv1.JobCondition{{Type: outcome, Status: corev1.ConditionTrue}}
		j.Status.CompletionTime = &at
	}
	return j
}

func summary(p plan) string {
	out := ""
	for _, s := range p.steps {
		switch s.verb {
		case createJob:
			out += "create " + s.slot.UTC().Format("15:04") + " "
		case removeJob:
			out += "remove " + s.job.Name + " "
		default:
			out += s.reason + " "
		}
	}
	return out
}

func TestDecide(t *testing.T) {
	zone := "Europe/Berlin"
	forbid := func(c *batchv1.CronJob) { c.Spec.ConcurrencyPolicy = batchv1.ForbidConcurrent }
	cases := []struct {
		name string
		cron *batchv1.CronJob
		jobs []*batchv1.Job
		now  time.Time
		want string
	}{
		{"a due slot", newCron("*/5 * * * *", last(noon.Add(-5*time.Minute))), nil, noon.Add(time.Second), "create 12:00 "},
		{"not yet", newCron("*/5 * * * *", last(noon)), nil, noon.Add(4 * time.Minute), ""},
		{"only the newest of the missed ones", newCron("*/5 * * * *", last(noon.Add(-time.Hour))), nil, noon.Add(7 * time.Minute), "create 12:05 "},
		{"a slot before its creation is not due", newCron("0 11 * * *", nil), nil, noon.Add(-time.Minute), ""},
		{"suspended", newCron("* * * * *", func(c *batchv1.CronJob) { c.Spec.Suspend = new(bool); *c.Spec.Suspend = true }), nil, noon, ""},
		{"too old for its deadline", newCron("0 * * * *", func(c *batchv1.CronJob) {
			last(noon.Add(-time.Hour))(c)
			c.Spec.StartingDeadlineSeconds = new(int64)
			*c.Spec.StartingDeadlineSeconds = 60
		}), nil, noon.Add(5 * time.Minute), "MissSchedule "},
		{"a deadline beyond all time", newCron("0 * * * *", func(c *batchv1.CronJob) {
			last(noon.Add(-time.Hour))(c)
			c.Spec.StartingDeadlineSeconds = new(int64(9223372037))
		}), nil, noon.Add(5 * time.Minute), "create 12:00 "},
		{"Allow runs beside the active one", newCron("* * * * *", last(noon.Add(-time.Minute))), []*batchv1.Job{jobOf(1, "")}, noon, "create 12:00 "},
		{"Forbid skips", newCron("* * * * *", func(c *batchv1.CronJob) { last(noon.Add(-time.Minute))(c); forbid(c) }), []*batchv1.Job{jobOf(1, "")}, noon, "JobAlreadyActive "},
		{"Forbid says so once", newCron("* * * * *", func(c *batchv1.CronJob) {
			last(noon.Add(-time.Minute))(c)
			forbid(c)
			c.Annotations = map[string]string{skipped: "2026-11-30T12:00:00Z"}
		}), []*batchv1.Job{jobOf(1, "")}, noon, ""},
		{"Forbid catches up when the active one has ended", newCron("0 * * * *", func(c *batchv1.CronJob) { last(noon.Add(-time.Hour))(c); forbid(c) }),
			[]*batchv1.Job{jobOf(1, batchv1.JobComplete)}, noon.Add(9 * time.Minute), "create 12:00 "},
		{"Replace removes the active one", newCron("* * * * *", func(c *batchv1.CronJob) {
			last(noon.Add(-time.Minute))(c)
			c.Spec.ConcurrencyPolicy = batchv1.ReplaceConcurrent
		}), []*batchv1.Job{jobOf(1, "")}, noon, "remove tick-1 create 12:00 "},
		{"history keeps the newest", newCron("0 0 1 1 *", nil), []*batchv1.Job{
			jobOf(1, batchv1.JobComplete), jobOf(2, batchv1.JobComplete), jobOf(3, batchv1.JobComplete), jobOf(4, batchv1.JobComplete),
			jobOf(5, batchv1.JobFailed), jobOf(6, batchv1.JobFailed)}, noon, "remove tick-1 remove tick-5 "},
		{"in its own time zone", newCron("30 13 * * *", func(c *batchv1.CronJob) { c.Spec.TimeZone = &zone }), nil, noon.Add(31 * time.Minute), "create 12:30 "},
		{"@every counts from its creation, and only the newest is made up for", newCron("@every 25m", nil), nil, noon.Add(17 * time.Minute), "create 12:15 "},
		{"@every has slots of its own, not from when somebody looks", newCron("@every 90s", last(noon)), nil, noon.Add(89 * time.Second), ""},
		{"a time zone that nobody knows", newCron("* * * * *", func(c *batchv1.CronJob) { nowhere := "Europe/Nowhere"; c.Spec.TimeZone = &nowhere }), nil, noon, "UnknownTimeZone "},
		{"a schedule nobody can read", newCron("61 * * * *", nil), nil, noon, "UnparseableSchedule "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := summary(decide(observed{cron: c.cron, jobs: c.jobs}, c.now)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// However the clock jumps, no slot is given out twice.
func TestR5_NoSlotTwiceUnderClockSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cron := newCron(rapid.SampledFrom([]string{"* * * * *", "*/7 * * * *", "15 2 * * *", "0 0 29 2 *", "@hourly"}).Draw(t, "schedule"), nil)
		taken := map[int64]bool{}
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(-7200, 7200).Draw(t, "step")) * time.Second)
			p := decide(observed{cron: cron}, now)
			for _, s := range p.steps {
				if s.verb != createJob {
					continue
				}
				if taken[s.slot.Unix()] {
					t.Fatalf("slot %s twice", s.slot)
				}
				if s.slot.After(now) {
					t.Fatalf("slot %s before its time %s", s.slot, now)
				}
				taken[s.slot.Unix()] = true
			}
			cron = p.cron
		}
	})
}

// The bisection finds what a walk over all slots finds.
func TestNewestIsTheLastOfAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"}).Draw(t, "zone")
		cron := newCron(rapid.SampledFrom([]string{"*/13 * * * *", "30 2 * * *", "0 */3 * * 1-5", "5 4 1 * *"}).Draw(t, "schedule"), func(c *batchv1.CronJob) { c.Spec.TimeZone = &zone })
		s, err := parse(cron)
		if err != nil {
			t.Fatal(err)
		}
		since := noon.Add(time.Duration(rapid.Int64Range(0, 365*86400).Draw(t, "since")) * time.Second)
		now := since.Add(time.Duration(rapid.Int64Range(0, 40*86400).Draw(t, "span")) * time.Second)
		var want time.Time
		for at := s.Next(since); !at.After(now); at = s.Next(at) {
			want = at
		}
		got, ok := newest(s, since, now)
		if ok != !want.IsZero() || ok && !got.Equal(want) {
			t.Fatalf("newest(%s, %s) = %s %v, a walk says %s", since, now, got, ok, want)
		}
	})
}
