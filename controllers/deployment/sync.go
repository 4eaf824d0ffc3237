package deployment

import (
	"maps"
	"strconv"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newSet makes the set that serves the Deployment's template, without pods yet.
// Its identity is given when it is written.
func newSet(o *observed, d *appsv1.Deployment) *set {
	d.Status.CollisionCount = o.fresh.collisions
	template := *d.Spec.Template.DeepCopy()
	template.Labels = withHash(template.Labels, o.fresh.hash)
	selector := d.Spec.Selector.DeepCopy()
	selector.MatchLabels = withHash(selector.MatchLabels, o.fresh.hash)
	return &set{to: &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       d.Namespace,
			Name:            o.fresh.name,
			Labels:          maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{podset.Controller(d)},
			Generation:      1,
		},
		Spec: appsv1.ReplicaSetSpec{MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: template},
	}}
}

func withHash(labels map[string]string, hash string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	return out
}

// sync brings the current set up to date with the Deployment, and the Deployment's
// revision with the set's.
func sync(o *observed, cur *set, d *appsv1.Deployment) {
	highest := int64(0)
	for _, s := range o.sets {
		if s != cur {
			highest = max(highest, revisionOf(s.to))
		}
	}
	annotateCurrent(cur.to, d, highest+1)
	podset.FillRefs(cur.to, o.refs)
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[annotationRevision] = strconv.FormatInt(revisionOf(cur.to), 10)
}
