package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxLost bounds how often one transaction may find that others took claims first.
// Each time one of theirs has succeeded.
const maxLost = 100

var errNotLoaded = errors.New("commit: the store is not loaded, so it is not known which addresses are taken")

func writesServices(t Txn) bool {
	return slices.ContainsFunc(t.Ops, func(op Op) bool { _, ok := op.Object.(*corev1.Service); return ok })
}

// commitServices completes the Services of a transaction and commits it. What they
// take is theirs by the same transaction: it also writes the lock of the claims, on
// the condition that this is as it was when it was known who has what. Two that take
// at once both write the lock, so one of them decides again; what is deleted, or no
// longer named, is free without a lock. On success the Services in t are as written.
func (s *Store) commitServices(ctx context.Context, t Txn) (int64, error) {
	select {
	case <-s.synced:
	default:
		return 0, errNotLoaded
	}
	// One at a time in this process: they would only lose to each other.
	select {
	case s.taking <- struct{}{}:
		defer func() { <-s.taking }()
	case <-ctx.Done():
		return 0, fmt.Errorf("commit: %w", ctx.Err())
	}
	p, err := s.prepare(ctx, t)
	if err != nil {
		return 0, err
	}
	for lost, fresh := 0, false; lost < maxLost; {
		out, err := p.complete(s)
		if err != nil && fresh {
			return 0, err
		}
		if err != nil { // perhaps what it wants has become free
			if err := s.readClaims(ctx); err != nil {
				return 0, err
			}
			fresh = true
			continue
		}
		revision, err := s.commit(ctx, out)
		var at *KeyError
		if errors.As(err, &at) && at.Key == lockKey() {
			if err := s.readClaims(ctx); err != nil {
				return 0, err
			}
			lost, fresh = lost+1, true
			continue
		}
		if err != nil {
			return 0, err
		}
		s.claims.wrote(out, revision)
		p.handBack(out)
		return revision, nil
	}
	return 0, fmt.Errorf("commit: others took addresses or ports first, %d times: %w", maxLost, ErrUnavailable)
}

// Rehearse completes the Services of ops as Commit would now, and writes nothing. The
// answer is of what is known here: another may take the same first.
func (s *Store) Rehearse(ctx context.Context, ops ...Op) error {
	t := Txn{Ops: ops}
	if s.claims == nil || !writesServices(t) {
		return nil
	}
	p, err := s.prepare(ctx, t)
	if err != nil {
		return err
	}
	out, err := p.complete(s)
	if err == nil {
		p.handBack(out)
	}
	return err
}

// prepared is a transaction with its Services as they are before claims are given
// out.
type prepared struct {
	txn      Txn
	services map[int]*corev1.Service // by op: prepared
	live     map[int]*corev1.Service // by op: what is replaced
}

// prepare reads what the Services of t replace and lets them inherit from it.
func (s *Store) prepare(ctx context.Context, t Txn) (*prepared, error) {
	if _, err := s.draft(t); err != nil {
		return nil, err
	}
	p := &prepared{txn: t, services: map[int]*corev1.Service{}, live: map[int]*corev1.Service{}}
	for i, op := range t.Ops {
		svc, ok := op.Object.(*corev1.Service)
		if !ok || op.Verb == Delete {
			continue
		}
		if op.Verb == Update {
			live, err := s.serviceAt(ctx, svc)
			if err != nil {
				return nil, err
			}
			p.live[i] = live
		}
		out := svc.DeepCopy()
		if errs := api.PrepareService(out, p.live[i]); len(errs) > 0 {
			return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, svc.Name, errs)
		}
		p.services[i] = out
	}
	return p, nil
}

// serviceAt is a Service as it was at the revision that svc was read at.
func (s *Store) serviceAt(ctx context.Context, svc *corev1.Service) (*corev1.Service, error) {
	key := KeyOf(svc)
	if live, ok := s.Get(key).(*corev1.Service); ok && live.ResourceVersion == svc.ResourceVersion {
		return live, nil
	}
	revision, err := strconv.ParseInt(svc.ResourceVersion, 10, 64)
	if err != nil {
		return nil, &KeyError{Key: key, Err: err}
	}
	live, _, err := s.GetAt(ctx, key, revision)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrCompacted), errors.Is(err, ErrFuture):
		return nil, &KeyError{Key: key, Err: ErrConflict}
	case err != nil:
		return nil, err
	}
	return live.(*corev1.Service), nil
}

// complete gives the Services what they lack, by what is known of the others, and
// adds the lock when they take anything.
func (p *prepared) complete(s *Store) (Txn, error) {
	out := p.txn
	out.Ops = slices.Clone(p.txn.Ops)
	v := s.claims.view(p.txn)
	// What is named is spoken for before anything is chosen.
	for i := range out.Ops {
		if svc := p.services[i]; svc != nil {
			v.give(svc)
		}
	}
	takes := false
	for i := range out.Ops {
		svc := p.services[i]
		if svc == nil {
			continue
		}
		svc, key := svc.DeepCopy(), KeyOf(svc)
		err := s.allocate(svc, p.live[i], func(c api.Claim) string {
			if by := v.holder(c); by != key && by != (Key{}) {
				return "Service " + by.Namespace + "/" + by.Name
			}
			return ""
		})
		if err != nil {
			return Txn{}, err
		}
		v.give(svc)
		takes = takes || more(svc, p.live[i])
		out.Ops[i].Object = svc
	}
	if takes {
		out.Ops = append(out.Ops, s.lockOp(v.lock))
	}
	return out, nil
}

// more says whether svc has claims that live, which may be nil, has not.
func more(svc, live *corev1.Service) bool {
	var had []api.Claim
	if live != nil {
		had = api.Claims(live)
	}
	return slices.ContainsFunc(api.Claims(svc), func(c api.Claim) bool { return !slices.Contains(had, c) })
}

// lockOp writes the lock that was there at a revision; 0: that was not there.
func (s *Store) lockOp(revision int64) Op {
	lock := &api.Allocation{ObjectMeta: metav1.ObjectMeta{Name: api.ServiceAllocation}}
	Stamp(lock, s.now())
	if revision == 0 {
		return Op{Verb: Create, Object: lock}
	}
	if known := s.Get(lockKey()); known != nil {
		lock.UID, lock.CreationTimestamp = known.GetUID(), known.GetCreationTimestamp()
	}
	lock.ResourceVersion = strconv.FormatInt(revision, 10)
	return Op{Verb: Update, Object: lock}
}

// handBack makes the caller's Services those of out.
func (p *prepared) handBack(out Txn) {
	for i := range p.services {
		*p.txn.Ops[i].Object.(*corev1.Service) = *out.Ops[i].Object.(*corev1.Service)
	}
}
