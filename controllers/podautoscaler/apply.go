package podautoscaler

import (
	"context"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
)

// apply writes what was decided in one transaction. What was found wrong is told in an
// Event when the status begins to say so, not each time.
func (c *controller) apply(ctx context.Context, o observed, d decision, fence store.Fence) error {
	next := o.autoscaler.DeepCopy()
	next.Status = d.status
	if d.rescales != o.autoscaler.Annotations[api.AnnotationRescales] {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, api.AnnotationRescales, d.rescales)
	}
	if d.replicas == nil && equality.Semantic.DeepEqual(next, o.autoscaler) {
		return nil
	}
	txn := store.Txn{Fence: fence, Ops: []store.Op{{Verb: store.Update, Object: next}}}
	if d.replicas != nil {
		target, err := api.WithReplicas(o.target, *d.replicas)
		if err != nil {
			return err
		}
		txn.Ops = append(txn.Ops, store.Op{Verb: store.Update, Object: target})
	}
	for _, n := range d.notices {
		if n.kind == corev1.EventTypeNormal || !told(o.autoscaler, d.status.Conditions) {
			txn.Ops = append(txn.Ops, c.events.Op(o.autoscaler, n.kind, n.reason, n.message)...)
		}
	}
	_, err := c.Store.Commit(ctx, txn)
	return err
}

// told says whether the conditions say nothing that they did not say before.
func told(before *autoscalingv2.HorizontalPodAutoscaler, now []autoscalingv2.HorizontalPodAutoscalerCondition) bool {
	for _, c := range now {
		was := condition(before.Status.Conditions, c.Type)
		if was == nil || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message {
			return false
		}
	}
	return true
}
