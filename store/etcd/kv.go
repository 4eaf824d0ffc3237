package etcd

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"headway.dev/headway/store"
)

// requestTimeout bounds one request whose caller set no earlier end: a member
// without a majority would otherwise keep an outside client waiting for ever.
const requestTimeout = 10 * time.Second

type kv struct {
	client  *clientv3.Client
	streams *streams
	outside bool
}

// begin bounds a request, also by the life of the client: a member that was
// closed would otherwise still forward some requests to its peers.
func (k *kv) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(k.client.Ctx(), cancel)
	if k.client.Ctx().Err() != nil {
		cancel()
	}
	return ctx, func() {
		stop()
		cancel()
	}
}

func (k *kv) classify(err error) error {
	if err != nil && k.client.Ctx().Err() != nil {
		return fmt.Errorf("%w: closed", store.ErrUnavailable)
	}
	return classify(err)
}

func (k *kv) Range(ctx context.Context, r store.RangeRequest) (store.RangeResponse, error) {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	var opts []clientv3.OpOption
	if r.End != "" {
		opts = append(opts, clientv3.WithRange(r.End))
	}
	if r.Revision != 0 {
		opts = append(opts, clientv3.WithRev(r.Revision))
	}
	if r.Limit > 0 {
		opts = append(opts, clientv3.WithLimit(int64(r.Limit)))
	}
	if r.KeysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	if r.CountOnly {
		opts = append(opts, clientv3.WithCountOnly())
	}
	got, err := k.client.Get(ctx, r.Start, opts...)
	if err != nil {
		return store.RangeResponse{}, fmt.Errorf("range: %w", k.classify(err))
	}
	out := store.RangeResponse{Revision: got.Header.Revision, Count: int(got.Count)}
	if len(got.Kvs) > 0 {
		out.Entries = make([]store.Entry, len(got.Kvs))
	}
	for i, e := range got.Kvs {
		out.Entries[i] = entry(e)
	}
	return out, nil
}

func entry(e *mvccpb.KeyValue) store.Entry {
	return store.Entry{
		Key: string(e.Key), Value: e.Value,
		CreateRevision: e.CreateRevision, ModRevision: e.ModRevision,
		Lease: store.LeaseID(e.Lease),
	}
}

func (k *kv) Commit(ctx context.Context, compares []store.Compare, then []store.Write) (store.Committed, error) {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	if len(compares) > store.MaxOps || len(then) > store.MaxOps {
		return store.Committed{}, fmt.Errorf("commit of %d compares and %d writes, at most %d of each: %w", len(compares), len(then), store.MaxOps, store.ErrTooLarge)
	}
	var conditions []clientv3.Cmp
	var reads, writes []clientv3.Op
	for _, c := range compares {
		target := clientv3.ModRevision(c.Key)
		if c.Create {
			target = clientv3.CreateRevision(c.Key)
		}
		conditions = append(conditions, clientv3.Compare(target, "=", c.Revision))
		reads = append(reads, clientv3.OpGet(c.Key, clientv3.WithKeysOnly()))
	}
	size := 0
	for _, w := range then {
		size += len(w.Key) + len(w.Value)
		if w.Delete {
			writes = append(writes, clientv3.OpDelete(w.Key))
			continue
		}
		writes = append(writes, clientv3.OpPut(w.Key, string(w.Value), clientv3.WithLease(clientv3.LeaseID(w.Lease))))
	}
	if size > store.MaxBytes {
		return store.Committed{}, fmt.Errorf("commit of %d bytes, at most %d: %w", size, store.MaxBytes, store.ErrTooLarge)
	}
	got, err := k.client.Txn(ctx).If(conditions...).Then(writes...).Else(reads...).Commit()
	if err != nil {
		return store.Committed{}, fmt.Errorf("commit: %w", k.classify(err))
	}
	out := store.Committed{OK: got.Succeeded, Revision: got.Header.Revision}
	if out.OK {
		return out, nil
	}
	for i, r := range got.Responses {
		var have int64
		if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
			have = kvs[0].ModRevision
			if compares[i].Create {
				have = kvs[0].CreateRevision
			}
		}
		if have != compares[i].Revision {
			out.Failed = append(out.Failed, store.Failed{Index: i, Revision: have})
		}
	}
	return out, nil
}

func (k *kv) Compact(ctx context.Context, rev int64) error {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	return k.compact(ctx, rev)
}

// compact may take longer than one request when it is physical.
func (k *kv) compact(ctx context.Context, rev int64, opts ...clientv3.CompactOption) error {
	if _, err := k.client.Compact(ctx, rev, opts...); err != nil {
		return fmt.Errorf("compact to revision %d: %w", rev, k.classify(err))
	}
	return nil
}

func (k *kv) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	seconds := int64((ttl + time.Second - 1) / time.Second)
	got, err := k.client.Grant(ctx, seconds)
	if err != nil {
		return 0, fmt.Errorf("grant a lease: %w", k.classify(err))
	}
	return store.LeaseID(got.ID), nil
}

func (k *kv) KeepAlive(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	got, err := k.client.KeepAliveOnce(ctx, clientv3.LeaseID(id))
	if err != nil {
		return 0, fmt.Errorf("keep lease %x alive: %w", int64(id), k.classify(err))
	}
	return time.Duration(got.TTL) * time.Second, nil
}

func (k *kv) Revoke(ctx context.Context, id store.LeaseID) error {
	ctx, cancel := k.begin(ctx)
	defer cancel()
	if _, err := k.client.Revoke(ctx, clientv3.LeaseID(id)); err != nil {
		return fmt.Errorf("revoke lease %x: %w", int64(id), k.classify(err))
	}
	return nil
}
