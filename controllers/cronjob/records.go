package cronjob

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// keptGone is how many records of CronJobs that are gone are kept, those with the
// newest slots: to repeat a slot somebody would have to delete that many CronJobs, and
// declare again one whose clock is set back behind all of them.
const keptGone = 1000

// recordKey is where the slots of a CronJob are noted.
func recordKey(namespace, name string) store.Key {
	return store.Key{GroupResource: api.SlotRecords(), Name: api.RecordName(api.CronJobs(), namespace, name)}
}

// sweepKey is the key of the look at all records.
func sweepKey() reconcile.Key { return store.Key{GroupResource: api.SlotRecords()} }

// tooMany are the records that go: of CronJobs that are gone, beyond keptGone, those
// whose newest slot is the oldest.
func tooMany(records []api.Object, there func(api.ObjectRef) bool) []*api.SlotRecord {
	var gone []*api.SlotRecord
	for _, obj := range records {
		if r, ok := obj.(*api.SlotRecord); ok && !there(r.CronJob) {
			gone = append(gone, r)
		}
	}
	slices.SortFunc(gone, func(a, b *api.SlotRecord) int {
		return cmp.Or(a.Newest().Compare(b.Newest()), cmp.Compare(a.Name, b.Name))
	})
	return gone[:max(0, len(gone)-keptGone)]
}

// sweep removes the records that are too many, on the condition that their CronJobs
// are gone.
func (c *controller) sweep(ctx context.Context) error {
	records := tooMany(c.Store.List(api.SlotRecords(), ""), func(ref api.ObjectRef) bool {
		return c.Store.Get(store.Key{GroupResource: api.CronJobs(), Namespace: ref.Namespace, Name: ref.Name}) != nil
	})
	for batch := range slices.Chunk(records, store.BulkObjects/2) {
		t := store.Txn{Fence: c.Fence()}
		for _, r := range batch {
			t.If = append(t.If, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: r.CronJob.Namespace, Name: r.CronJob.Name}})
			t.Ops = append(t.Ops, store.Op{Verb: store.Delete, Object: r})
		}
		if _, err := c.Store.Commit(ctx, t); err != nil {
			return fmt.Errorf("remove the slots of CronJobs that are gone: %w", err)
		}
	}
	return nil
}
