package syncer

import (
	"headway.dev/headway/api"
	"headway.dev/headway/store"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Done is the outcome of a declared Job as a receipt records it.
type Done = api.DoneJob

// DoneFromReceipt makes the done records of a source out of what receipts say, by
// the key of the Job, so that a new cluster does not run again what an earlier one
// has run (R3). Of several about one Job the last one counts. What is no outcome
// of a Job is left out: a note may come from anywhere.
func DoneFromReceipt(source string, done []Done) map[store.Key]*api.DoneRecord {
	out := map[store.Key]*api.DoneRecord{}
	for _, d := range done {
		if d.Kind != "Job" || d.Namespace == "" || d.Name == "" || d.Hash == "" {
			continue
		}
		if d.Outcome != string(batchv1.JobComplete) && d.Outcome != string(batchv1.JobFailed) {
			continue
		}
		out[store.Key{GroupResource: api.Jobs(), Namespace: d.Namespace, Name: d.Name}] = &api.DoneRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name},
			Source:     source, Hash: d.Hash, Outcome: d.Outcome, FinishedAt: metav1.NewTime(d.FinishedAt),
		}
	}
	return out
}
