package statefulset

import (
	"maps"
	"slices"
	"strconv"

	"headway.dev/headway/internal/podset"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func claimName(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) string {
	return template.Name + "-" + set.Name + "-" + strconv.Itoa(ordinal)
}

// withClaims puts the claims of an ordinal in the place of the volumes that have
// the names of their templates.
func withClaims(set *appsv1.StatefulSet, ordinal int, volumes []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	named := map[string]bool{}
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		named[t.Name] = true
		source := corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, t, ordinal)}
		out = append(out, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &source}})
	}
	for _, v := range volumes {
		if !named[v.Name] {
			out = append(out, v)
		}
	}
	return out
}

// newClaim makes the claim of a template and ordinal.
func newClaim(set *appsv1.StatefulSet, template *corev1.PersistentVolumeClaim, ordinal int) *corev1.PersistentVolumeClaim {
	out := template.DeepCopy()
	out.Name, out.Namespace = claimName(set, template, ordinal), set.Namespace
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	maps.Copy(out.Labels, set.Spec.Selector.MatchLabels)
	out.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	return out
}

// claimsFor creates the claims that a slot lacks. It says whether they are all
// there then: one that is being deleted, or that goes with a pod that is gone, must
// go first.
func (d *decision) claimsFor(s *slot) bool {
	for i := range d.set.Spec.VolumeClaimTemplates {
		live := d.claims[claimName(d.set, &d.set.Spec.VolumeClaimTemplates[i], s.ordinal)]
		if live != nil && (live.DeletionTimestamp != nil || s.pod == nil && stale(live, "Pod", podName(d.set, s.ordinal), "")) {
			return false
		}
	}
	for i := range d.set.Spec.VolumeClaimTemplates {
		t := &d.set.Spec.VolumeClaimTemplates[i]
		name := claimName(d.set, t, s.ordinal)
		if d.claims[name] != nil || d.writtenClaims[name] || d.closed {
			continue
		}
		if d.claimless != "" {
			return false
		}
		d.writtenClaims[name] = true
		made := newClaim(d.set, t, s.ordinal)
		made.OwnerReferences = d.owners(nil, s, false)
		d.add(Step{Verb: claim, Object: made, Pod: s.pod, Message: podName(d.set, s.ordinal), Reason: "a pod needs it"})
	}
	return true
}

// maxOwned bounds the claims whose owners one plan writes.
const maxOwned = 50

// ownClaims gives a slot's claims the owners that the retention policy asks for:
// whoever they are to go with.
func (d *decision) ownClaims(s *slot, condemned bool) {
	for i := range d.set.Spec.VolumeClaimTemplates {
		live := d.claims[claimName(d.set, &d.set.Spec.VolumeClaimTemplates[i], s.ordinal)]
		if live == nil || live.DeletionTimestamp != nil || d.writtenClaims[live.Name] ||
			stale(live, "StatefulSet", d.set.Name, d.set.UID) || stale(live, "Pod", s.pod.Name, s.pod.UID) {
			continue // one that an earlier namesake owns is the garbage collector's
		}
		if len(d.writtenClaims) >= maxOwned {
			return // their events have the set looked at again
		}
		wanted := d.owners(live.OwnerReferences, s, condemned)
		if d.deleting() && controlledByOther(live, d.set.UID, s.pod.UID) {
			wanted = without(live.OwnerReferences, d.set.UID, s.pod.UID)
			d.add(Step{Verb: misclaimed, Message: "PersistentVolumeClaim " + live.Name + " has a conflicting OwnerReference that acts as a managing controller, the retention policy is ignored for this claim", Reason: "it has another controller"})
		}
		if sameOwners(live.OwnerReferences, wanted) {
			continue
		}
		d.writtenClaims[live.Name] = true
		to := live.DeepCopy()
		to.OwnerReferences = wanted
		d.add(Step{Verb: ownClaim, Object: to, Reason: "persistentVolumeClaimRetentionPolicy"})
	}
}

func (d *decision) policy() appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if p := d.set.Spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		return *p
	}
	return appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
}

// deleting says whether claims are ever to go.
func (d *decision) deleting() bool {
	p := d.policy()
	return p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType || p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType
}

// owners are those of a claim whose owners are refs now.
func (d *decision) owners(refs []metav1.OwnerReference, s *slot, condemned bool) []metav1.OwnerReference {
	var pod types.UID
	if s.pod != nil {
		pod = s.pod.UID
	}
	out := without(refs, d.set.UID, pod)
	p := d.policy()
	switch {
	case condemned && p.WhenScaled == appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return append(out, podset.Controller(s.pod))
	case p.WhenDeleted == appsv1.DeletePersistentVolumeClaimRetentionPolicyType:
		return append(out, podset.Controller(d.set))
	}
	return out
}

func without(refs []metav1.OwnerReference, uids ...types.UID) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, r := range refs {
		if !slices.Contains(uids, r.UID) {
			out = append(out, r)
		}
	}
	return out
}

// stale says whether a claim has an owner of that name and another UID.
func stale(claim *corev1.PersistentVolumeClaim, kind, name string, uid types.UID) bool {
	return slices.ContainsFunc(claim.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.Kind == kind && r.Name == name && r.UID != uid
	})
}

func controlledByOther(claim *corev1.PersistentVolumeClaim, uids ...types.UID) bool {
	ref := metav1.GetControllerOfNoCopy(claim)
	return ref != nil && !slices.Contains(uids, ref.UID)
}

func sameOwners(a, b []metav1.OwnerReference) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.OwnerReference) bool {
		is := func(r metav1.OwnerReference) bool { return r.Controller != nil && *r.Controller }
		return x.UID == y.UID && is(x) == is(y)
	})
}
