package route

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/knftables"
)

// Sync returns when the kernel has everything that was told before.
func (r *Router) Sync(ctx context.Context) error {
	unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	r.settle()
	r.started = true
	r.mu.Unlock()
	if r.synced {
		if err = r.update(ctx); err == nil {
			return r.after()
		}
		// Somebody else changed the table, perhaps. What is really there decides.
		r.cfg.Log.Warn("change of Services' routes refused, table is compared", "table", r.cfg.Table, "error", err)
	}
	if err := r.repair(ctx); err != nil {
		return err
	}
	return r.after()
}

// Run looks at the kernel on a period until ctx is done and puts back what
// somebody else took away.
func (r *Router) Run(ctx context.Context) error {
	tick := time.NewTicker(r.cfg.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.check(ctx); err != nil && ctx.Err() == nil {
			r.cfg.Log.Error("routes of Services not checked", "table", r.cfg.Table, "error", err)
		}
	}
}

// check is one look. Nothing is read but the generation unless somebody else
// wrote to nftables since. What was told after the last Sync waits for the next:
// the teller may be in the middle of it.
func (r *Router) check(ctx context.Context) error {
	unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !r.started {
		return nil // what an earlier process left goes on
	}
	now, err := r.kernel.generation()
	if err != nil {
		return err
	}
	switch {
	case r.synced && now == r.seen:
		err = r.update(ctx)
	case time.Now().Before(r.nextAll):
		return nil
	default:
		err = r.repair(ctx)
	}
	if err != nil {
		return err
	}
	return errors.Join(r.after(), r.ensureRoute())
}

// lock waits for the right to write to the kernel.
func (r *Router) lock(ctx context.Context) (func(), error) {
	select {
	case r.writing <- struct{}{}:
		return func() { <-r.writing }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for routes of Services: %w", ctx.Err())
	}
}

// update tells the kernel what changed since it was last told.
func (r *Router) update(ctx context.Context) error {
	r.mu.Lock()
	c := r.wanted.take()
	r.flows.note(c, r.wanted, false)
	r.mu.Unlock()
	if c.empty() {
		return nil
	}
	before, err := r.kernel.generation()
	var writes uint32
	if err == nil {
		writes, err = r.run(ctx, c)
	}
	if err != nil {
		r.synced = false
		return err
	}
	if before == r.seen {
		r.seen += writes // if somebody else wrote at this moment, the next check finds another number
	}
	return nil
}

// share is the part of the time, one in so many, that comparing whole tables may
// take when others change nftables all the time.
const share = 100

// repair compares the whole table and makes it what it should be.
func (r *Router) repair(ctx context.Context) error {
	start := time.Now()
	r.synced = false
	gen, err := r.kernel.generation()
	if err != nil {
		return err
	}
	o, err := r.kernel.observe()
	if err != nil {
		return err
	}
	first := r.seen == 0
	r.mu.Lock()
	c := r.wanted.against(r.layout, o)
	r.flows.note(c, r.wanted, true)
	r.mu.Unlock()
	if !c.empty() {
		if excess := len(c.remove) - c.late; !first && (c.all || len(c.add)+excess > 0) {
			r.cfg.Log.Warn("routes of Services were not as they should be, put back", "table", r.cfg.Table,
				"all", c.all, "missing", len(c.add), "excess", excess)
		}
		writes, err := r.run(ctx, c)
		if err != nil {
			return err
		}
		gen += writes
	}
	r.synced, r.seen = true, gen
	if err := r.ensureRoute(); err != nil {
		// Pods do not need it. The next check tries again.
		r.cfg.Log.Warn("the node itself does not reach Services", "error", err)
	}
	r.nextAll = time.Now().Add(share * time.Since(start))
	return nil
}

// run writes a change and returns in how many transactions.
func (r *Router) run(ctx context.Context, c *change) (uint32, error) {
	parts := c.transactions()
	for _, part := range parts {
		tx := r.nft.NewTransaction()
		part.write(tx, r.layout)
		if err := r.nft.Run(ctx, tx); err != nil {
			return 0, fmt.Errorf("change nftables table %s: %w", r.cfg.Table, err)
		}
	}
	return uint32(len(parts)), nil
}

// after does what is to be done once the rules are there.
func (r *Router) after() error {
	r.health.apply()
	return r.flows.delete()
}

// Close ends what is not in the kernel. The rules stay: connections go on.
func (r *Router) Close() { r.health.close() }

// Destroy removes everything that this package made in the kernel.
func (r *Router) Destroy(ctx context.Context) error {
	unlock, err := r.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r.mu.Lock()
	r.started = false
	r.mu.Unlock()
	r.synced = false
	r.health.close()
	tx := r.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	if err := r.nft.Run(ctx, tx); err != nil {
		err = fmt.Errorf("remove nftables table %s: %w", r.cfg.Table, err)
		return errors.Join(err, r.removeRoute())
	}
	return r.removeRoute()
}
