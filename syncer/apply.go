package syncer

import (
	"context"
	"errors"
	"slices"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apply does the steps of an accepted commit in transactions of bounded size.
// Each step is conditioned on the object it was planned for, so that doing a part
// of them, being killed and planning again ends in the same state (R2). Between
// two transactions a newer commit takes over (R13). The applied commit moves with
// the last transaction.
func (s *Syncer) apply(ctx context.Context, src *api.Source, v *Verdict) error {
	start := s.cfg.Now()
	batches, waiting := cut(v.steps, s.bulk)
	receipt := s.receipt(src, v.Commit)
	receipt.applies(v, s.cfg.Server)
	receipt.allows(allowance(src, v.Commit))
	receipt.paused(src)
	if (len(batches) > 1 || len(waiting) > 0) && (src.Status.Applying != v.Commit || receipt.changed) {
		out := begun(src, v)
		if err := s.commit(ctx, []store.Op{{Verb: store.Update, Object: out}, receipt.op()}); err != nil {
			return err
		}
		receipt.written()
		src = out.DeepCopyObject().(*api.Source)
	}
	if len(batches) == 0 {
		batches = [][]Step{nil}
	}
	var conflict error
	for i, batch := range batches {
		if i > 0 && s.superseded(src, v.Commit) {
			s.loop.Wake(s.key)
			return nil
		}
		var end *ending
		if i == len(batches)-1 && conflict == nil && len(waiting) == 0 {
			end = s.ending(src, v, receipt)
		}
		err := s.do(ctx, batch, end, src)
		switch {
		case isConflict(err):
			conflict = err
		case err != nil:
			return err
		}
	}
	if conflict != nil {
		return store.ErrConflict // plan again, from what is there now
	}
	if len(waiting) > 0 {
		return s.waitFor(ctx, src, v, waiting)
	}
	s.use(v.desired)
	s.refused = refusal{}
	s.forgetEnded()
	if a := allowance(src, v.Commit); a.Commit != "" {
		s.cfg.Log.Warn("commit applied as an operator allowed", "commit", a.Commit, "rewind", a.Rewind, "unsigned", a.Unsigned, "by", a.By, "why", a.Why, "allowed", a.At.Time)
	}
	s.lookAtDrift()
	s.cfg.Log.Info("commit applied", "commit", v.Commit, "objects", v.Objects, "created", v.Create, "updated", v.Update, "deleted", v.Delete,
		"took", s.cfg.Now().Sub(start).Round(time.Millisecond))
	return nil
}

// superseded says whether the hosted ref has moved on from commit.
func (s *Syncer) superseded(src *api.Source, commit string) bool {
	return s.cfg.Fetch == nil && s.hosted(src) != commit
}

// moved is the Source as it is when the commit is applied.
func (s *Syncer) moved(src *api.Source, v *Verdict) *api.Source {
	out := src.DeepCopyObject().(*api.Source)
	out.Status = api.SourceStatus{
		Head: v.Commit, Applied: v.Commit, AppliedTime: metav1.NewTime(s.cfg.Now().Truncate(time.Second)),
		Path: src.Spec.Path, Objects: v.Objects, Synced: src.Orders.Sync,
		WriteBack: src.Status.WriteBack, CommitStatus: src.Status.CommitStatus,
		Pauses: src.Status.Pauses,
	}
	if a := allowance(src, v.Commit); a.Commit != "" {
		out.Status.Used, out.Orders.Allow = &a, nil // it was for this one move
	}
	return out
}

// begun is the Source while the commit is applied in several transactions.
func begun(src *api.Source, v *Verdict) *api.Source {
	out := src.DeepCopyObject().(*api.Source)
	out.Status.Head, out.Status.Applying = v.Commit, v.Commit
	return out
}

// ending is what is written with the last batch: that the commit is applied, or,
// when a part of the batch met a conflict, that it is under way.
type ending struct{ applied, begun []store.Op }

func (s *Syncer) ending(src *api.Source, v *Verdict, receipt *draftReceipt) *ending {
	e := &ending{}
	if src.Status.Applying != v.Commit || receipt.changed {
		under := *receipt
		under.Receipt = receipt.DeepCopyObject().(*api.Receipt)
		e.begun = []store.Op{{Verb: store.Update, Object: begun(src, v)}, under.op()}
	}
	receipt.applied(s.cfg.Now())
	e.applied = []store.Op{{Verb: store.Update, Object: s.moved(src, v)}, receipt.op()}
	return e
}

// waitFor reports that objects must be gone before they can be made again.
func (s *Syncer) waitFor(ctx context.Context, src *api.Source, v *Verdict, waiting []Step) error {
	waiting = slices.DeleteFunc(waiting, func(step Step) bool { return step.Key.GroupResource == api.Sources() })
	if len(waiting) == 0 {
		return reconcile.After(time.Second, "until a further source has stopped writing") // its event wakes us
	}
	status := src.Status
	status.Head, status.Applying = v.Commit, v.Commit
	status.Message = waiting[0].Key.String() + " " + waiting[0].Reason
	if more := len(waiting) - 1; more > 0 {
		status.Message += "; and " + thousands(more) + " more"
	}
	if err := s.writeStatus(ctx, src, status); err != nil {
		return err
	}
	return reconcile.After(time.Second, status.Message)
}

// cut makes transactions of the steps, in their order. An object that is deleted
// and made again comes in two.
func cut(steps []Step, bulk int) (batches [][]Step, waiting []Step) {
	var batch []Step
	keys := map[store.Key]bool{}
	bytes, objects := 0, 0
	flush := func() {
		if len(batch) > 0 {
			batches = append(batches, batch)
		}
		batch, bytes, objects = nil, 0, 0
		clear(keys)
	}
	add := func(step Step) {
		key, n, size := measure(step)
		// Three places are left: for the Source, the receipt and the lock of addresses.
		if objects+n > bulk-3 || bytes+size > store.BulkBytes || keys[key] {
			flush()
		}
		batch, bytes, objects, keys[key] = append(batch, step), bytes+size, objects+n, true
	}
	for _, group := range together(steps) {
		if len(group) > 1 {
			n, size := 0, 0
			for _, step := range group {
				_, more, bytes := measure(step)
				n, size = n+more, size+bytes
			}
			if objects+n > bulk-3 || bytes+size > store.BulkBytes {
				flush()
			}
		}
		for _, step := range group {
			switch step.Verb {
			case Wait:
				waiting = append(waiting, step)
			case Stuck:
			default:
				add(step)
			}
		}
	}
	flush()
	return batches, waiting
}

// measure is what a step adds to a transaction.
func measure(step Step) (key store.Key, objects, bytes int) {
	if step.Op.Object == nil {
		return step.Key, 0, 0
	}
	bytes = sizeOf(step.Op)
	for _, op := range step.Also {
		bytes += sizeOf(op)
	}
	return store.KeyOf(step.Op.Object), 1 + len(step.Also), bytes
}

// sizeOf estimates what an op adds to a transaction.
func sizeOf(op store.Op) int {
	const key = 200
	if op.Verb == store.Delete {
		return key
	}
	if o, ok := op.Object.(interface{ Size() int }); ok {
		return o.Size() + key
	}
	return 4096
}

// do writes one batch, and its end with it when that is given. Steps whose object
// has changed meanwhile are left out and the rest is done; the last conflict is
// returned, and the commit is then not said to be applied. All of it holds only as
// long as src is as it was read: an order of an operator, such as a pause, counts at
// once.
func (s *Syncer) do(ctx context.Context, batch []Step, end *ending, src *api.Source) error {
	left := make(map[store.Key]store.Op, len(batch))
	var order []store.Key
	for _, step := range batch {
		key := store.KeyOf(step.Op.Object)
		left[key] = step.Op
		order = append(order, key)
	}
	var conflict error
	for {
		var ops []store.Op
		for _, key := range order {
			if op, ok := left[key]; ok {
				ops = append(ops, op)
			}
		}
		when := []api.Object{src}
		if end != nil && conflict == nil {
			ops, when = append(ops, end.applied...), nil
		} else if end != nil && len(ops) > 0 && len(end.begun) > 0 {
			ops, when = append(ops, end.begun...), nil // the Source is among them
		}
		if len(ops) == 0 {
			return conflict
		}
		err := s.commit(ctx, ops, when...)
		var at *store.KeyError
		if !errors.As(err, &at) {
			if err == nil {
				err = conflict
			}
			return err
		}
		if !isConflict(err) {
			return err
		}
		conflict = err
		if _, ours := left[at.Key]; !ours {
			return err // the Source or the receipt is another now
		}
		delete(left, at.Key)
	}
}
