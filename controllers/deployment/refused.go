package deployment

import (
	"context"
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// reasonCreateError is Kubernetes' reason of a set that could not be made.
const reasonCreateError = "ReplicaSetCreateError"

// refusedSet is the Deployment with the condition that says why its new set could not
// be made, as a quota of sets refuses it, and what that says; nil: it is no new set
// that was refused, or it stands there already.
func refusedSet(d *appsv1.Deployment, steps []Step, cause error, now time.Time) (out *appsv1.Deployment, message string) {
	i := slices.IndexFunc(steps, func(s Step) bool { return s.Verb == write && s.Set.is == nil })
	if i < 0 {
		return nil, ""
	}
	message = fmt.Sprintf("Failed to create new replica set %q: %v", steps[i].Set.to.Name, cause)
	before := condition(d.Status.Conditions, appsv1.DeploymentProgressing)
	if before != nil && before.Reason == reasonCreateError && before.Message == message {
		return nil, message
	}
	if d.Spec.ProgressDeadlineSeconds == nil {
		return nil, message
	}
	shallow := *d
	out = &shallow
	c := newCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reasonCreateError, message, now)
	if before != nil && before.Status == corev1.ConditionFalse {
		c.LastTransitionTime = before.LastTransitionTime
	}
	out.Status.Conditions = append(without(d.Status.Conditions, appsv1.DeploymentProgressing), c)
	return out, message
}

// tell writes why a new set could not be made, and makes it an event. It is tried
// again whether or not that succeeds.
func (c *controller) tell(ctx context.Context, d *appsv1.Deployment, steps []Step, cause error, now time.Time) error {
	out, message := refusedSet(d, steps, cause, now)
	if message == "" {
		return nil
	}
	ops := c.events.Op(d, corev1.EventTypeWarning, reasonCreateError, message)
	if out != nil {
		ops = append(ops, store.Op{Verb: store.Update, Object: out})
	}
	if len(ops) == 0 {
		return nil
	}
	_, err := c.Store.Commit(ctx, store.Txn{Fence: c.Fence(), Ops: ops})
	return err
}
