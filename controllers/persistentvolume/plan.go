package persistentvolume

import (
	"fmt"
	"slices"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// step is one transaction: what is written, on which conditions beside that, and what
// is told.
type step struct {
	ops   []store.Op
	given []api.Object
	note  *note
}

type note struct {
	about                 api.Object
	kind, reason, message string
}

// The reasons of Kubernetes' events.
const (
	failedBinding        = "FailedBinding"
	volumeMismatch       = "VolumeMismatch"
	provisioningFailed   = "ProvisioningFailed"
	waitForFirstConsumer = "WaitForFirstConsumer"
	claimLost            = "ClaimLost"
	claimMisbound        = "ClaimMisbound"
	resized              = "VolumeResizeSuccessful"
)

// seenClaim is a claim and what matters to it.
type seenClaim struct {
	claim   *corev1.PersistentVolumeClaim
	volume  *corev1.PersistentVolume // that the claim names; nil when it is not there
	volumes []*corev1.PersistentVolume
	classes []*storagev1.StorageClass
	used    bool // by a pod that has a node; known of a claim that is being deleted
}

func (o *seenClaim) class() *storagev1.StorageClass {
	name := storagehelpers.GetPersistentVolumeClaimClass(o.claim)
	i := slices.IndexFunc(o.classes, func(c *storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return o.classes[i]
}

// planClaim decides about one claim.
func planClaim(o seenClaim) step {
	claim := o.claim
	switch {
	case claim.DeletionTimestamp != nil:
		if o.used || !slices.Contains(claim.Finalizers, api.ProtectClaim) {
			return step{}
		}
		return let(claim, api.ProtectClaim)
	case !slices.Contains(claim.Finalizers, api.ProtectClaim):
		out := claim.DeepCopy()
		out.Finalizers = append(out.Finalizers, api.ProtectClaim)
		return write(out)
	case metav1.HasAnnotation(claim.ObjectMeta, storagehelpers.AnnBindCompleted):
		return planBound(o)
	case claim.Spec.VolumeName != "":
		return planNamed(o)
	}
	return planUnbound(o)
}

// planUnbound looks for a volume for a claim that names none.
func planUnbound(o seenClaim) step {
	claim, class := o.claim, o.class()
	volumes, err := binding.Candidates(claim, o.volumes)
	if err != nil {
		return tell(claim, corev1.EventTypeWarning, failedBinding, err.Error())
	}
	if len(volumes) > 0 && (!binding.Delayed(class) || volumes[0].Spec.ClaimRef != nil) {
		return bind(volumes[0], claim)
	}
	if to := admission.WithDefaultClass(claim, o.classes); to != claim {
		return write(to)
	}
	name := storagehelpers.GetPersistentVolumeClaimClass(claim)
	switch {
	case name == "":
		return tell(claim, corev1.EventTypeNormal, failedBinding, "no persistent volumes available for this claim and no storage class is set")
	case class == nil:
		return tell(claim, corev1.EventTypeWarning, provisioningFailed, fmt.Sprintf("storageclass.storage.k8s.io %q not found", name))
	case api.ClassNote(class) != "":
		return tell(claim, corev1.EventTypeWarning, provisioningFailed, fmt.Sprintf("StorageClass %q: %s", name, api.ClassNote(class)))
	case binding.Delayed(class):
		return tell(claim, corev1.EventTypeNormal, waitForFirstConsumer, "waiting for first consumer to be created before binding")
	}
	return tell(claim, corev1.EventTypeWarning, provisioningFailed, fmt.Sprintf("no volume plugin matched name: %s", class.Provisioner))
}

// planNamed binds a claim to the volume that it names, if that can be.
func planNamed(o seenClaim) step {
	claim, v := o.claim, o.volume
	switch {
	case v == nil:
		return tell(claim, corev1.EventTypeWarning, failedBinding, fmt.Sprintf("volume %q not found", claim.Spec.VolumeName))
	case v.Spec.ClaimRef != nil && !storagehelpers.IsVolumeBoundToClaim(v, claim):
		return tell(claim, corev1.EventTypeWarning, failedBinding, fmt.Sprintf("volume %q already bound to a different claim.", v.Name))
	case binding.Mismatch(v, claim) != "":
		return tell(claim, corev1.EventTypeWarning, volumeMismatch, fmt.Sprintf("Cannot bind to requested volume %q: %s", v.Name, binding.Mismatch(v, claim)))
	case v.DeletionTimestamp != nil:
		return tell(claim, corev1.EventTypeWarning, failedBinding, fmt.Sprintf("volume %q is being deleted", v.Name))
	}
	return bind(v, claim)
}

// planBound sees to a claim that has been bound.
func planBound(o seenClaim) step {
	claim, v := o.claim, o.volume
	lost := func(reason, message string, given ...api.Object) step {
		if claim.Status.Phase == corev1.ClaimLost {
			return step{}
		}
		out := claim.DeepCopy()
		out.Status.Phase, out.Status.AccessModes, out.Status.Capacity = corev1.ClaimLost, nil, nil
		return step{ops: write(out).ops, given: given, note: &note{claim, corev1.EventTypeWarning, reason, message}}
	}
	switch {
	case claim.Spec.VolumeName == "":
		return lost(claimLost, "Bound claim has lost reference to PersistentVolume. Any data on the volume is lost!")
	case v == nil:
		return lost(claimLost, "Bound claim has lost its PersistentVolume. Any data on the volume is lost!", &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim.Spec.VolumeName}})
	case v.Spec.ClaimRef == nil:
		return bind(v, claim)
	case !storagehelpers.IsVolumeBoundToClaim(v, claim):
		return lost(claimMisbound, "Two claims are bound to the same volume, this one is bound incorrectly", v)
	case v.Spec.ClaimRef.UID == "":
		return bind(v, claim)
	}
	wanted, has := claim.Spec.Resources.Requests[corev1.ResourceStorage], v.Spec.Capacity[corev1.ResourceStorage]
	if class := o.class(); wanted.Cmp(has) > 0 && class != nil && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion && api.LocalVolumeNode(v) != "" {
		volume, out := v.DeepCopy(), claim.DeepCopy()
		volume.Spec.Capacity[corev1.ResourceStorage] = wanted
		binding.Report(out, volume)
		return step{ops: append(write(volume).ops, write(out).ops...), note: &note{claim, corev1.EventTypeNormal, resized, "Resized volume " + v.Name + " to " + wanted.String()}}
	}
	if claim.Status.Phase == corev1.ClaimBound && len(claim.Status.Capacity) > 0 {
		return step{}
	}
	out := claim.DeepCopy()
	binding.Report(out, v)
	return step{ops: write(out).ops, given: []api.Object{v}}
}

// seenVolume is a volume and what matters to it.
type seenVolume struct {
	volume *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim // of the name in its claimRef; nil when there is none
	node   *corev1.Node                  // that has its data; nil when it is gone, or unknown
	now    time.Time
}

// planVolume decides about one volume.
func planVolume(o seenVolume) step {
	v := o.volume
	bound := o.claim != nil && v.Spec.ClaimRef.UID == o.claim.UID
	if v.DeletionTimestamp != nil {
		return o.going(bound)
	}
	if !slices.Contains(v.Finalizers, api.ProtectVolume) {
		out := v.DeepCopy()
		out.Finalizers = append(out.Finalizers, api.ProtectVolume)
		return write(out)
	}
	switch ref := v.Spec.ClaimRef; {
	case ref == nil || ref.UID == "": // nobody's, or meant for a claim that is yet to take it
		return o.phase(corev1.VolumeAvailable, "")
	case !bound:
		return o.released()
	case o.claim.Spec.VolumeName == v.Name:
		if !binding.Complete(o.claim) {
			return step{} // the claim's turn
		}
		return o.phase(corev1.VolumeBound, "")
	case o.claim.Spec.VolumeName == "":
		return step{} // the claim finds it
	}
	// The claim has another one.
	if made(v) && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		s := o.mark()
		s.given = []api.Object{o.claim}
		return s
	}
	out := v.DeepCopy()
	if metav1.HasAnnotation(v.ObjectMeta, storagehelpers.AnnBoundByController) {
		out.Spec.ClaimRef = nil
		delete(out.Annotations, storagehelpers.AnnBoundByController)
	} else {
		out.Spec.ClaimRef.UID = "" // somebody wrote the claim into it
	}
	out.Status.Phase, out.Status.Reason, out.Status.Message = corev1.VolumeAvailable, "", ""
	s := write(out)
	s.given = []api.Object{o.claim}
	return s
}

// made says whether a volume was made by Headway for a claim.
func made(v *corev1.PersistentVolume) bool { return api.LocalVolumeNode(v) != "" }

// otherSide is the condition that the volume's claim is gone, or another one.
func (o seenVolume) otherSide() []api.Object {
	switch ref := o.volume.Spec.ClaimRef; {
	case ref == nil:
		return nil
	case o.claim != nil:
		return []api.Object{o.claim}
	default:
		return []api.Object{&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}}
	}
}

// phase writes a phase that is not there yet.
func (o seenVolume) phase(is corev1.PersistentVolumePhase, message string) step {
	if o.volume.Status.Phase == is && o.volume.Status.Message == message {
		return step{}
	}
	out := o.volume.DeepCopy()
	if out.Status.Phase != is {
		now := metav1.NewTime(o.now)
		out.Status.LastPhaseTransitionTime = &now
	}
	out.Status.Phase, out.Status.Reason, out.Status.Message = is, "", message
	s := write(out)
	s.given = o.otherSide()
	return s
}

// released sees to a volume whose claim is gone.
func (o seenVolume) released() step {
	v := o.volume
	if v.Status.Phase != corev1.VolumeReleased && v.Status.Phase != corev1.VolumeFailed {
		return o.phase(corev1.VolumeReleased, "")
	}
	switch {
	case v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
		return o.phase(corev1.VolumeReleased, "")
	case made(v):
		s := o.mark()
		s.given = o.otherSide()
		return s
	}
	const why = "no deletable volume plugin matched: the data of a declared volume is removed by who has put it there, and then the PersistentVolume"
	s := o.phase(corev1.VolumeFailed, why)
	if len(s.ops) > 0 {
		s.note = &note{v, corev1.EventTypeWarning, "VolumeFailedDelete", why}
	}
	return s
}

// mark deletes the volume, which its finalizers hold.
func (o seenVolume) mark() step {
	out := o.volume.DeepCopy()
	now, grace := metav1.NewTime(o.now.Truncate(time.Second)), int64(0)
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = &now, &grace
	return write(out)
}

// going lets a volume that is being deleted go: the protection when no claim has it,
// and what waits for its node when that is gone for good.
func (o seenVolume) going(bound bool) step {
	v := o.volume
	switch {
	case slices.Contains(v.Finalizers, api.ProtectVolume):
		if bound {
			return step{}
		}
		s := let(v, api.ProtectVolume)
		s.given = o.otherSide()
		return s
	case slices.Contains(v.Finalizers, api.LocalVolumeFinalizer) && o.node == nil && !bound:
		s := let(v, api.LocalVolumeFinalizer)
		s.given = o.otherSide()
		name := api.LocalVolumeNode(v)
		if name == "" {
			return step{}
		}
		s.given = append(s.given, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		s.note = &note{v, corev1.EventTypeWarning, "VolumeDelete", "node " + name + " is gone: what is left of the data on its disk is not removed"}
		return s
	case len(v.Finalizers) == 0:
		return step{ops: []store.Op{{Verb: store.Delete, Object: v}}}
	}
	return step{}
}

// planClass makes the class that every cluster has. It is the default unless there is
// another one.
func planClass(classes []*storagev1.StorageClass) step {
	if slices.ContainsFunc(classes, func(c *storagev1.StorageClass) bool { return c.Name == api.LocalClass }) {
		return step{}
	}
	wait, policy, grows := storagev1.VolumeBindingWaitForFirstConsumer, corev1.PersistentVolumeReclaimDelete, true
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: api.LocalClass}, Provisioner: api.LocalProvisioner,
		ReclaimPolicy: &policy, VolumeBindingMode: &wait, AllowVolumeExpansion: &grows}
	if admission.DefaultClass(classes) == nil {
		class.Annotations = map[string]string{admission.DefaultClassAnnotation: "true"}
	}
	return step{ops: []store.Op{{Verb: store.Create, Object: class}}}
}

func write(obj api.Object) step {
	return step{ops: []store.Op{{Verb: store.Update, Object: obj}}}
}

func tell(claim *corev1.PersistentVolumeClaim, kind, reason, message string) step {
	s := step{note: &note{claim, kind, reason, message}}
	if claim.Status.Phase != corev1.ClaimPending {
		out := claim.DeepCopy()
		out.Status.Phase = corev1.ClaimPending
		s.ops = write(out).ops
	}
	return s
}

// bind writes both sides.
func bind(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) step {
	volume, bound, err := binding.Bind(v, claim)
	if err != nil {
		return tell(claim, corev1.EventTypeWarning, failedBinding, err.Error())
	}
	return step{ops: append(write(volume).ops, write(bound).ops...)}
}

// let takes a finalizer off; with the last one an object that is being deleted goes.
func let(obj api.Object, finalizer string) step {
	out := obj.DeepCopyObject().(api.Object)
	out.SetFinalizers(slices.DeleteFunc(slices.Clone(out.GetFinalizers()), func(f string) bool { return f == finalizer }))
	if len(out.GetFinalizers()) == 0 {
		return step{ops: []store.Op{{Verb: store.Delete, Object: obj}}}
	}
	return write(out)
}
