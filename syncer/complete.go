package syncer

import (
	"cmp"
	"context"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/syncer/forge"
)

// complete is the receipt as it is to be now, and what a rollout waits for.
func (n *Noter) complete(r *api.Receipt) (c api.ReceiptContent, doing string) {
	s, key := n.cfg.Syncer, store.KeyOf(r)
	c = r.ReceiptContent.Clone()
	src := s.source()
	if src == nil {
		return c, ""
	}
	switch {
	case src.Status.Applied == r.Commit && !r.Applied.IsZero():
	case src.Status.Applying == r.Commit || r.Result.Final():
		n.unwatch(key)
		return c, ""
	default:
		n.unwatch(key)
		c.Result, c.Reason = api.ResultSuperseded, "by commit "+cmp.Or(src.Status.Applying, src.Status.Applied, src.Status.Head)
		n.end(&c)
		return c, ""
	}
	c.Done, c.MoreDone = s.doneJobs()
	if r.Result != api.ResultRollingOut && r.Result != api.ResultFailed {
		n.unwatch(key)
		return c, ""
	}
	n.watch(key)
	if n.run == nil || n.run.commit != r.Commit || n.run.attempt != r.Attempt {
		n.run = s.newRollout(r)
	}
	n.looked = n.cfg.Now()
	result, reason := n.run.look(n.looked)
	if result == api.ResultRollingOut || result == r.Result {
		return c, reason // what has failed stays failed until it is healthy
	}
	c.Result, c.Reason = result, clip(reason, maxProblem)
	c.Rollout, c.MoreRuns = n.run.lines()
	n.end(&c)
	return c, ""
}

func (n *Noter) unwatch(key store.Key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watching == key {
		n.watching = store.Key{}
	}
}

func (n *Noter) end(c *api.ReceiptContent) {
	c.Ended = instant(n.cfg.Now())
	c.Seconds = secondsOf(c.Ended.Sub(c.Started))
}

// report says a receipt as a commit status.
func (n *Noter) report(ctx context.Context, r *api.Receipt, doing string) error {
	if n.statuses == nil {
		return nil
	}
	src := n.cfg.Syncer.source()
	if src == nil {
		return nil
	}
	phase := map[api.Result]forge.Phase{
		api.ResultApplying: forge.Applying, api.ResultRollingOut: forge.RollingOut, api.ResultHealthy: forge.Healthy,
		api.ResultFailed: forge.Failed, api.ResultRefused: forge.Refused, api.ResultSuperseded: forge.Superseded,
	}[r.Result]
	reason := cmp.Or(r.Reason, doing)
	if r.Result == api.ResultRefused && len(r.Problems) > 0 {
		reason = r.Problems[0]
	}
	return n.statuses.Report(ctx, forge.Report{
		Commit: r.Commit, Ref: refOf(src), Attempt: r.Attempt, Revision: n.cfg.Store.Revision(), Phase: phase, Reason: reason,
	})
}

func (n *Noter) reportHead(ctx context.Context) error {
	src := n.cfg.Syncer.source()
	if n.statuses == nil || src == nil || src.Status.Head == "" || src.Status.Head == src.Status.Applied {
		return nil
	}
	if n.cfg.Store.Get(receiptKey(src.Name, src.Status.Head)) != nil {
		return nil // it says more
	}
	revision := n.cfg.Store.Revision()
	return n.statuses.Report(ctx, forge.Report{
		Commit: src.Status.Head, Ref: refOf(src), Attempt: revision, Revision: revision, Phase: forge.Waiting, Reason: src.Status.Message,
	})
}

// tell is told why commit statuses do not reach the forge.
func (n *Noter) tell(problem string) {
	n.mu.Lock()
	n.problem = problem
	n.mu.Unlock()
	n.loop.Wake(n.cfg.Syncer.key)
}

// noteProblem notes that on the Source, for headway status.
func (n *Noter) noteProblem(ctx context.Context) error {
	n.mu.Lock()
	problem := n.problem
	n.mu.Unlock()
	src := n.cfg.Syncer.source()
	if src == nil || src.Status.CommitStatus == problem {
		return nil
	}
	out := src.DeepCopyObject().(*api.Source)
	out.Status.CommitStatus = problem
	_, err := n.cfg.Store.Commit(ctx, store.Txn{Fence: n.cfg.Fence(), Ops: []store.Op{{Verb: store.Update, Object: out}}})
	if err != nil {
		return fmt.Errorf("note whether commit statuses reach the forge: %w", err)
	}
	return nil
}
