package storage

import (
	"context"
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/warning"
)

// keeps says whether an object is not deleted on request, and why: the name of a
// StatefulSet's pod that a node may run is in use until its agent has said that it is
// stopped, or the operator that the node is gone (R10).
func keeps(obj api.Object) (why string, yes bool) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !podset.Identity(pod) || !podset.MayRun(pod) {
		return "", false
	}
	return fmt.Sprintf("pod %s/%s has an identity and stays until node %s has stopped it; if that machine is gone for good, say so: "+
		"kubectl taint node %s %s=nodeshutdown:NoExecute", pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Spec.NodeName, corev1.TaintNodeOutOfService), true
}

// stripped refuses to take a pod's identity off it as long as a node may run it: what
// says that it has one, its labels and its owner, are fields that a client may change, and
// then nothing would keep its name.
func stripped(current, next api.Object) error {
	was, ok := current.(*corev1.Pod)
	if !ok {
		return nil
	}
	now, ok := next.(*corev1.Pod)
	if !ok || !podset.Identity(was) || !podset.MayRun(was) || podset.Identity(now) {
		return nil
	}
	return apierrors.NewForbidden(corev1.Resource("pods"), was.Name, fmt.Errorf("it has an identity while node %s may run it: its controller and the label %s stay",
		was.Spec.NodeName, appsv1.StatefulSetPodNameLabel))
}

// graced gives a pod that keeps its name a grace that is not zero: zero would say that
// it has been stopped. One that has ended gets its full grace, since what is left of
// it stops by that; the registry would give it none, whatever was asked for.
func graced(current, next api.Object) {
	if current == nil || next.GetDeletionTimestamp() == nil || next.GetDeletionGracePeriodSeconds() == nil || *next.GetDeletionGracePeriodSeconds() != 0 {
		return
	}
	if _, yes := keeps(current); !yes {
		return
	}
	grace := podset.LeastGrace
	if pod := current.(*corev1.Pod); pod.DeletionTimestamp == nil && podset.Terminal(pod) && pod.Spec.TerminationGracePeriodSeconds != nil {
		grace = max(grace, *pod.Spec.TerminationGracePeriodSeconds)
	}
	at := metav1.NewTime(next.GetDeletionTimestamp().Add(api.Seconds(grace)))
	if was := current.GetDeletionTimestamp(); was != nil && was.Before(&at) {
		at = *was
	}
	next.SetDeletionTimestamp(&at)
	next.SetDeletionGracePeriodSeconds(&grace)
}

// kept ends a deletion of what keeps its name: the request was granted as far as it
// could be, and its sender is told. changed: the object is another than the request
// was held against, and has to be looked at again.
func (a *attempt) kept(ctx context.Context) (kept, changed bool, err error) {
	if _, yes := keeps(a.current); !yes {
		return false, false, nil
	}
	if !a.fresh {
		if changed, err := a.reread(ctx); changed || err != nil {
			return false, changed, err
		}
	}
	why, yes := keeps(a.current)
	if yes {
		warning.AddWarning(ctx, "", why)
	}
	return yes, false, nil
}
