package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// bounds is what Options.Bounds and what this process has written of quotas are.
type bounds struct {
	Bounds
	taking chan struct{} // holds an element while a transaction is charged

	mu     sync.Mutex
	newest map[Key]*corev1.ResourceQuota // written here, newer than the cache showed
}

func newBounds(b Bounds) *bounds {
	return &bounds{Bounds: b, taking: make(chan struct{}, 1), newest: map[Key]*corev1.ResourceQuota{}}
}

// boundedIn lists the namespaces in which a transaction makes something, or changes
// what can grow, and in which there is a LimitRange or a ResourceQuota.
func (s *Store) boundedIn(t Txn) []string {
	if s.bounds == nil {
		return nil
	}
	found := map[string]bool{}
	for _, op := range t.Ops {
		ns := op.Object.GetNamespace()
		if _, known := found[ns]; known || ns == "" || !charges(op) {
			continue
		}
		found[ns] = len(s.List(api.LimitRanges(), ns)) > 0 || len(s.List(api.ResourceQuotas(), ns)) > 0
	}
	maps.DeleteFunc(found, func(_ string, bounded bool) bool { return !bounded })
	return slices.Sorted(maps.Keys(found))
}

// charges says whether an op may use more than there was.
func charges(op Op) bool {
	switch op.Verb {
	case Create:
		return true
	case Update:
		switch op.Object.(type) {
		case *corev1.Service, *corev1.PersistentVolumeClaim:
			return true
		}
	}
	return false
}

// commitBounded completes what a transaction makes by the LimitRanges of its
// namespace and commits it with the quotas that it uses up: the quotas are written in
// the same transaction, on the condition that they are as they were when it was found
// to fit. So of two that take the last of something at once one decides again, on
// whichever server. On success the objects in t are as written.
func (s *Store) commitBounded(ctx context.Context, t Txn, namespaces []string) (int64, error) {
	// One at a time in this process: they would only lose to each other.
	select {
	case s.bounds.taking <- struct{}{}:
		defer func() { <-s.bounds.taking }()
	case <-ctx.Done():
		return 0, fmt.Errorf("commit: %w", ctx.Err())
	}
	limited, err := s.withinRanges(ctx, t, namespaces)
	if err != nil {
		return 0, err
	}
	writes, err := s.charged(ctx, limited, namespaces)
	if err != nil {
		return 0, err
	}
	for lost, fresh := 0, false; lost < maxLost; lost++ {
		out, err := s.chargeAll(ctx, limited, writes, fresh)
		if err != nil && !fresh { // perhaps something has become free
			fresh = true
			continue
		}
		if err != nil {
			return 0, err
		}
		revision, err := s.commitClaims(ctx, out)
		if at := (*KeyError)(nil); errors.As(err, &at) && at.Key.GroupResource == api.ResourceQuotas() && !writesKey(t, at.Key) {
			fresh = true
			continue
		}
		if err != nil {
			return 0, err
		}
		s.bounds.wrote(out)
		for i, op := range t.Ops {
			giveBack(op.Object, out.Ops[i].Object)
		}
		return revision, nil
	}
	return 0, fmt.Errorf("commit: others used up the quotas first, %d times: %w", maxLost, ErrUnavailable)
}

// withinRanges is t with its new objects, and the claims that ask for another size,
// completed and judged by the LimitRanges. What a claim had before a LimitRange came
// does not keep it from being bound.
func (s *Store) withinRanges(ctx context.Context, t Txn, namespaces []string) (Txn, error) {
	ranges := map[string][]*corev1.LimitRange{}
	for _, ns := range namespaces {
		for _, obj := range s.List(api.LimitRanges(), ns) {
			ranges[ns] = append(ranges[ns], obj.(*corev1.LimitRange))
		}
	}
	out := t
	out.Ops = slices.Clone(t.Ops)
	for i, op := range out.Ops {
		if r := ranges[op.Object.GetNamespace()]; len(r) > 0 && charges(op) {
			if claim, ok := op.Object.(*corev1.PersistentVolumeClaim); ok && op.Verb == Update {
				was, err := s.asRead(ctx, claim)
				if err != nil {
					return Txn{}, err
				}
				if old, ok := was.(*corev1.PersistentVolumeClaim); ok && equality.Semantic.DeepEqual(old.Spec.Resources, claim.Spec.Resources) {
					continue
				}
			}
			obj, err := s.bounds.Limit(op.Object, r)
			if err != nil {
				return Txn{}, err
			}
			out.Ops[i].Object = obj
		}
	}
	return out, nil
}

// charged is what a transaction writes that quotas may count, by namespace.
func (s *Store) charged(ctx context.Context, t Txn, namespaces []string) (map[string][]api.Charged, error) {
	out := map[string][]api.Charged{}
	for _, ns := range namespaces {
		out[ns] = nil
	}
	for _, op := range t.Ops {
		ns := op.Object.GetNamespace()
		if _, bounded := out[ns]; !bounded || !charges(op) {
			continue
		}
		w := api.Charged{Object: op.Object}
		if op.Verb == Update {
			var err error
			if w.Old, err = s.asRead(ctx, op.Object); err != nil {
				return nil, err
			}
		}
		out[ns] = append(out[ns], w)
	}
	return out, nil
}

// asRead is an object as it was at the revision that obj was read at.
func (s *Store) asRead(ctx context.Context, obj api.Object) (api.Object, error) {
	key := KeyOf(obj)
	if live := s.Get(key); live != nil && live.GetResourceVersion() == obj.GetResourceVersion() {
		return live, nil
	}
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, &KeyError{Key: key, Err: err}
	}
	live, _, err := s.GetAt(ctx, key, revision)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCompacted) || errors.Is(err, ErrFuture) {
		return nil, &KeyError{Key: key, Err: ErrConflict}
	}
	return live, err
}

// chargeAll is t with the quotas that it uses up.
func (s *Store) chargeAll(ctx context.Context, t Txn, writes map[string][]api.Charged, fresh bool) (Txn, error) {
	out := t
	out.Ops = slices.Clone(t.Ops)
	for _, ns := range slices.Sorted(maps.Keys(writes)) {
		quotas, at, err := s.quotas(ctx, t, ns, fresh)
		if err != nil {
			return Txn{}, err
		}
		changed, err := s.bounds.Charge(writes[ns], quotas, s.now())
		if err != nil {
			return Txn{}, err
		}
		for _, q := range changed {
			if i, ours := at[q.Name]; ours {
				out.Ops[i].Object = q
				continue
			}
			out.Ops = append(out.Ops, Op{Verb: Update, Object: q})
		}
		if len(writes[ns]) == 0 {
			continue
		}
		for _, q := range quotas {
			same := func(c *corev1.ResourceQuota) bool { return c.Name == q.Name }
			if _, ours := at[q.Name]; !ours && !inForce(q) && !slices.ContainsFunc(changed, same) {
				out.Ops = append(out.Ops, Op{Verb: Update, Object: q.DeepCopy()})
			}
		}
	}
	return out, nil
}

// inForce says whether what a quota demands is what is charged. While it is not,
// somebody is counting, or has counted since: what is made meanwhile is written with
// the quota as it is, so that one of the two is done again.
func inForce(q *corev1.ResourceQuota) bool {
	for name, hard := range q.Spec.Hard {
		if is, ok := q.Status.Hard[name]; !ok || is.Cmp(hard) != 0 {
			return false
		}
	}
	return true
}

// quotas are those of a namespace: as t writes them, and then at says by which op;
// else as they are known here or, fresh, as they are.
func (s *Store) quotas(ctx context.Context, t Txn, ns string, fresh bool) (out []*corev1.ResourceQuota, at map[string]int, err error) {
	at = map[string]int{}
	deleted := map[string]bool{}
	for i, op := range t.Ops {
		q, ok := op.Object.(*corev1.ResourceQuota)
		switch {
		case !ok || q.Namespace != ns:
		case op.Verb == Update:
			at[q.Name] = i
			out = append(out, q)
		case op.Verb == Delete:
			deleted[q.Name] = true
		}
	}
	objects := s.List(api.ResourceQuotas(), ns)
	if fresh {
		page, err := s.ListAt(ctx, api.ResourceQuotas(), ns, 0, 0, "")
		if err != nil {
			return nil, nil, fmt.Errorf("read the quotas of namespace %s: %w", ns, err)
		}
		objects = page.Objects
	}
	for _, obj := range objects {
		q := obj.(*corev1.ResourceQuota)
		if _, ours := at[q.Name]; ours || deleted[q.Name] {
			continue
		}
		if !fresh {
			q = s.bounds.latest(q)
		}
		out = append(out, q)
	}
	return out, at, nil
}

// latest is the newer of a quota as the cache has it and as this process wrote it.
func (b *bounds) latest(q *corev1.ResourceQuota) *corev1.ResourceQuota {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := KeyOf(q)
	mine := b.newest[key]
	if mine == nil {
		return q
	}
	is, err := versionOf(q)
	was, mineErr := versionOf(mine)
	if err != nil || mineErr != nil || is >= was || mine.UID != q.UID {
		delete(b.newest, key)
		return q
	}
	return mine
}

// wrote remembers the quotas of a transaction.
func (b *bounds) wrote(t Txn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, op := range t.Ops {
		if q, ok := op.Object.(*corev1.ResourceQuota); ok && op.Verb == Update {
			b.newest[KeyOf(q)] = q.DeepCopy()
		}
	}
}

func writesKey(t Txn, key Key) bool {
	return slices.ContainsFunc(t.Ops, func(op Op) bool { return KeyOf(op.Object) == key })
}

// giveBack makes the caller's object the one that was written.
func giveBack(to, from api.Object) {
	if to == from {
		return
	}
	switch o := from.(type) {
	case *corev1.Pod:
		*to.(*corev1.Pod) = *o
	case *corev1.PersistentVolumeClaim:
		*to.(*corev1.PersistentVolumeClaim) = *o
	case *corev1.ResourceQuota:
		*to.(*corev1.ResourceQuota) = *o
	}
}
