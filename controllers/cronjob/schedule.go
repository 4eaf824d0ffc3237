package cronjob

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// schedule tells the slots: Next returns the first slot after t, zero if there
// is none within five years.
type schedule interface{ Next(t time.Time) time.Time }

// errZone says that the time zone is not known.
var errZone = errors.New("unknown time zone")

// parse reads a CronJob's schedule in its time zone (UTC when it names none).
func parse(c *batchv1.CronJob) (schedule, error) {
	zone := time.UTC
	if c.Spec.TimeZone != nil {
		var err error
		if zone, err = time.LoadLocation(*c.Spec.TimeZone); err != nil {
			return nil, fmt.Errorf("spec.timeZone: %w: %w", errZone, err)
		}
	} else if strings.Contains(c.Spec.Schedule, "TZ") {
		return nil, fmt.Errorf("spec.schedule: a time zone belongs into spec.timeZone")
	}
	s, err := cron.ParseStandard(c.Spec.Schedule)
	if err != nil {
		return nil, fmt.Errorf("spec.schedule: %w", err)
	}
	if e, ok := s.(cron.ConstantDelaySchedule); ok {
		return every{c.CreationTimestamp.Time, e.Delay}, nil
	}
	return zoned{s, zone}, nil
}

// every has a slot each delay from a time on: "@every 1h30m" counts from when the
// CronJob was made.
type every struct {
	from  time.Time
	delay time.Duration
}

func (e every) Next(t time.Time) time.Time {
	if t.Before(e.from) {
		t = e.from
	}
	return e.from.Add(t.Sub(e.from)/e.delay*e.delay + e.delay)
}

// zoned reads a schedule in one time zone whatever zone a time comes in.
type zoned struct {
	schedule
	zone *time.Location
}

func (z zoned) Next(t time.Time) time.Time { return z.schedule.Next(t.In(z.zone)) }
