package syncer

import (
	"context"
	"fmt"
	"time"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PauseText says of a pause until when it holds, since when, by whom and why.
func PauseText(p *api.Pause) string {
	return fmt.Sprintf("paused until %s by %s: %s", p.Until.UTC().Format("2006-01-02 15:04:05 UTC"), p.By, p.Why)
}

// paused is the pause that holds now; nil when none does.
func paused(src *api.Source, now time.Time) *api.Pause {
	if src == nil || src.Orders.Pause == nil || src.Orders.Pause.EndedBy != "" || !now.Before(src.Orders.Pause.Until.Time) {
		return nil
	}
	return src.Orders.Pause
}

// pausing notes the begin and the end of a pause: what has waited is looked at when
// it is over.
func (s *Syncer) pausing(src *api.Source) *api.Pause {
	p := paused(src, s.cfg.Now())
	switch {
	case p != nil && (s.pause == nil || !equalObjects(s.pause, p)):
		s.cfg.Log.Warn("paused: nothing is applied and nothing is healed", "until", p.Until.Time, "by", p.By, "why", p.Why)
	case p == nil && s.pause != nil:
		s.cfg.Log.Info("the pause is over", "by", s.pause.By, "why", s.pause.Why)
		s.lookAtAll()
	}
	s.pause = p
	return p
}

// EndPause ends the pause that holds, for an operator; it gives that pause, or nil
// when none holds. The leader writes down when and by whom it was ended.
func EndPause(src *api.Source, by string, now time.Time) *api.Pause {
	p := paused(src, now)
	if p == nil {
		return nil
	}
	ended := *p
	ended.EndedBy = by
	src.Orders.Pause = &ended
	return p
}

// remember writes down in the status that a pause holds, and what became of it, and
// takes off one that is over; it gives nil when all that is done. Auditors find a
// pause in the receipt of the next commit, too.
func remember(src *api.Source, now time.Time) (out *api.Source, ended *api.EndedPause) {
	holds, order, seen := paused(src, now), src.Orders.Pause, src.Status.Pause
	over := seen != nil && !samePause(seen, holds)
	if seen == nil && order != nil && holds == nil {
		seen, over = order, true // nobody led while it held
	}
	if !over && (holds == nil || seen != nil) {
		return nil, nil
	}
	out = src.DeepCopyObject().(*api.Source)
	out.Status.Pause = holds
	if holds == nil {
		out.Orders.Pause = nil
	}
	if !over {
		return out, nil
	}
	ended = &api.EndedPause{Pause: *seen, Ended: seen.Until, Commit: src.Status.Applied}
	if now.Before(seen.Until.Time) {
		ended.Ended = metav1.NewTime(now.Truncate(time.Second))
	}
	switch {
	case holds != nil && holds.Since.Before(&seen.Until):
		ended.EndedBy = holds.By
	case holds != nil: // ordered after this one had run out
	case order != nil:
		ended.EndedBy = order.EndedBy
	}
	out.Status.Pauses = append(out.Status.Pauses, *ended)
	if more := len(out.Status.Pauses) - api.MaxPauses; more > 0 {
		out.Status.Pauses = out.Status.Pauses[more:]
	}
	return out, ended
}

func samePause(a, b *api.Pause) bool {
	return b != nil && a.Since.Equal(&b.Since) && a.Until.Equal(&b.Until) && a.By == b.By && a.Why == b.Why
}

// writePause writes what remember gives, and an Event with it.
func (s *Syncer) writePause(ctx context.Context, out *api.Source, ended *api.EndedPause) error {
	reason, text := "Paused", ""
	if ended != nil {
		reason, text = "PauseOver", fmt.Sprintf("the pause of %s since %s is over: %s", ended.By, ended.Since.UTC().Format("2006-01-02 15:04:05 UTC"), ended.Why)
		if ended.EndedBy != "" {
			text += "; ended by " + ended.EndedBy
		}
	}
	if p := out.Status.Pause; p != nil && ended != nil {
		text += "; " + PauseText(p)
	} else if p != nil {
		text = PauseText(p)
	}
	return s.write(ctx, out, s.events.Op(out, corev1.EventTypeNormal, reason, text)...)
}

// hold judges a new commit while the cluster is paused, and applies nothing: what is
// wrong with it is told at once.
func (s *Syncer) hold(ctx context.Context, src *api.Source, head string, p *api.Pause) error {
	status := src.Status
	if s.held != refusalOf(src, head) {
		v, err := s.judge(ctx, src, head, s.cfg.Commits)
		if err != nil {
			return err
		}
		if !v.OK() {
			return s.refuse(ctx, src, v)
		}
		s.held = refusalOf(src, head)
	}
	status.Head, status.Refused, status.Problems = head, "", nil
	status.Message = PauseText(p)
	return s.writeStatus(ctx, src, status)
}

// holds says why drift of the objects of a file is not put back now; empty when it is.
func (s *Syncer) holds(file string) string {
	switch {
	case s.pause != nil:
		return PauseText(s.pause)
	case s.desired.reports(file):
		return "drift: report"
	}
	return ""
}

// records leaves of the steps of a heal those that only write down what happened,
// which is done also while the cluster is paused.
func records(steps []Step) []Step {
	var out []Step
	for _, step := range steps {
		if step.Verb == Record || step.Reason == recordedOnly {
			out = append(out, step)
		}
	}
	return out
}
