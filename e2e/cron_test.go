package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const everyMinute = `apiVersion: batch/v1
kind: CronJob
metadata:
  name: tick
spec:
  schedule: "* * * * *"
  successfulJobsHistoryLimit: 100
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers:
            - {name: main, image: ` + probeName + `, args: [exit, "0"]}
`

// Each slot of a CronJob makes one Job, also when headway is killed right after it
// made one.
func TestR5_CronJobAcrossKills(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("tick", map[string]string{"tick.yaml": everyMinute})

	slots := map[string]map[string]bool{} // slot → the Jobs seen for it
	look := func() {
		client := c.client()
		jobs, err := client.BatchV1().Jobs("default").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return // headway is starting
		}
		for _, j := range jobs.Items {
			slot := j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
			if slots[slot] == nil {
				slots[slot] = map[string]bool{}
			}
			slots[slot][j.Name+" "+string(j.UID)] = true
		}
	}
	var down time.Duration // the longest time without a headway
	for n := 1; n <= 3; n++ {
		eventually(t, fmt.Sprintf("slot %d", n), func() error {
			if look(); len(slots) < n {
				return fmt.Errorf("%d slots", len(slots))
			}
			return nil
		})
		if n < 3 {
			began := time.Now()
			c.end(syscall.SIGKILL)
			c.start()
			c.waitReady()
			down = max(down, time.Since(began))
		}
	}
	// The events tell of Jobs that nobody saw, too.
	events := get[corev1.EventList](c, "events", "--field-selector", "reason=SuccessfulCreate")
	created := 0
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "CronJob" {
			created += int(max(e.Count, 1))
		}
	}
	look()
	if created > len(slots) {
		t.Errorf("%d Jobs were created for %d slots", created, len(slots))
	}
	var last time.Time
	for _, slot := range slices.Sorted(maps.Keys(slots)) {
		jobs := slots[slot]
		at, err := time.Parse(time.RFC3339, slot)
		if err != nil {
			t.Errorf("the slot of %v: %v", jobs, err)
		}
		// Of slots that were missed together only the newest is made up for.
		if !last.IsZero() && at.Sub(last) != time.Minute && down < 30*time.Second {
			t.Errorf("no Job between %s and %s", last, at)
		}
		last = at
		if len(jobs) != 1 {
			t.Errorf("slot %q has the Jobs %v", slot, jobs)
		}
	}
	for _, j := range get[batchv1.JobList](c, "jobs").Items {
		if !strings.HasPrefix(j.Name, "tick-") {
			t.Errorf("a stray Job %s", j.Name)
		}
	}
}
