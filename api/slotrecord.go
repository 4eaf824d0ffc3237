package api

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxSpans bounds SlotRecord.Taken.
const maxSpans = 32

// SlotRecord says which slots of a CronJob have had their Job (R5). It is written in
// the transaction that makes a Job, and it is keyed by the CronJob's namespace and
// name, so it outlives the CronJob, its status and its Jobs: one that is deleted and
// declared again while the clock is set back finds its slots taken.
//
// The slots are kept as spans. When there are too many, the two that are nearest to
// each other become one, and what is between them counts as taken: rather no Job than
// a second one. A gap of years, which a clock leaves that was wrong for a while, is
// the last to be closed.
type SlotRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"` // the name is RecordName
	CronJob           ObjectRef                   `json:"cronJob"`
	Taken             []SlotSpan                  `json:"taken"` // in order, apart from each other
}

// SlotSpan is a range of slots, both ends included.
type SlotSpan struct {
	First metav1.Time `json:"first"`
	Last  metav1.Time `json:"last"`
}

// Has says whether the slot counts as taken.
func (r *SlotRecord) Has(slot time.Time) bool {
	i := r.after(slot)
	return i > 0 && !slot.After(r.Taken[i-1].Last.Time)
}

// after is the index of the first span that begins after the slot.
func (r *SlotRecord) after(slot time.Time) int {
	i, _ := slices.BinarySearchFunc(r.Taken, slot, func(s SlotSpan, at time.Time) int {
		if s.First.After(at) {
			return 1
		}
		return -1
	})
	return i
}

// Take notes a slot.
func (r *SlotRecord) Take(slot time.Time) {
	if r.Has(slot) {
		return
	}
	at := metav1.NewTime(slot)
	r.Taken = slices.Insert(r.Taken, r.after(slot), SlotSpan{First: at, Last: at})
	if len(r.Taken) <= maxSpans {
		return
	}
	gap := func(i int) time.Duration { return r.Taken[i+1].First.Sub(r.Taken[i].Last.Time) }
	nearest := 0
	for i := range len(r.Taken) - 1 {
		if gap(i) < gap(nearest) {
			nearest = i
		}
	}
	r.Taken[nearest].Last = r.Taken[nearest+1].Last
	r.Taken = slices.Delete(r.Taken, nearest+1, nearest+2)
}

// Newest is the last slot that is taken.
func (r *SlotRecord) Newest() time.Time {
	if len(r.Taken) == 0 {
		return time.Time{}
	}
	return r.Taken[len(r.Taken)-1].Last.Time
}

// DeepCopyObject implements runtime.Object.
func (r *SlotRecord) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Taken = slices.Clone(r.Taken) // the times share nothing that changes
	return &out
}
