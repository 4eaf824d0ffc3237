package scheduler

import (
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

// maxUnbound is how many claims are bound with one pod: what a transaction has room
// for.
const maxUnbound = 30

// maxClaims bounds the claims of one pod: each is a condition of the transaction that
// places it.
const maxClaims = 200

// messageUnbound is Kubernetes' own.
const messageUnbound = "pod has unbound immediate PersistentVolumeClaims"

// wants is what a pod's claims ask of its node.
type wants struct {
	reached []*volume   // that it has, or gets by the plan
	loose   []loose     // claims whose volume is where the pod is, the smallest first
	alone   []store.Key // that no other pod may use
	held    []*corev1.PersistentVolumeClaim
	blocked string // why no node does; "" for nothing
}

// loose is a claim that waits for its first pod.
type loose struct {
	claim   *corev1.PersistentVolumeClaim
	class   *storagev1.StorageClass
	volumes []*volume // declared ones that it may have, the best first
	only    bool      // they name it: there are no others for it
}

// wants works out what a pod's claims ask for.
func (b *board) wants(r *record) *wants {
	w := &wants{}
	if len(r.claims) > maxClaims {
		w.blocked = fmt.Sprintf("pod has %d PersistentVolumeClaims, and at most %d are looked after", len(r.claims), maxClaims)
		return w
	}
	for _, key := range r.claims {
		if w.blocked = w.add(b.shelf, r.pod, key); w.blocked != "" {
			return w
		}
	}
	if len(w.loose) > maxUnbound {
		w.blocked = fmt.Sprintf("pod has %d unbound PersistentVolumeClaims, and at most %d are bound with a pod", len(w.loose), maxUnbound)
	}
	slices.SortStableFunc(w.loose, func(x, y loose) int {
		return x.claim.Spec.Resources.Requests.Storage().Cmp(*y.claim.Spec.Resources.Requests.Storage())
	})
	return w
}

// add looks at one claim and says, in Kubernetes' words, why no node does.
func (w *wants) add(s *shelf, pod *corev1.Pod, key store.Key) string {
	claim, own := s.claims[key], ownClaim(pod, key.Name)
	switch {
	case claim == nil && own:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", key.Name)
	case claim == nil:
		return fmt.Sprintf("persistentvolumeclaim %q not found", key.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", key.Name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", key.Name)
	}
	if own {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return err.Error()
		}
	}
	if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
		w.alone = append(w.alone, key)
	}
	v, bound := s.find(key, claim)
	switch {
	case v != nil:
		w.reached = append(w.reached, v)
		if s.promised[key] == nil {
			w.held = append(w.held, claim)
		}
		return ""
	case bound:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", key.Name, claim.Spec.VolumeName)
	}
	class := s.classes[storagehelpers.GetPersistentVolumeClaimClass(claim)]
	if !binding.Delayed(class) || claim.Spec.VolumeName != "" {
		return messageUnbound
	}
	volumes, err := s.candidates(claim)
	if err != nil {
		return err.Error()
	}
	w.loose = append(w.loose, loose{claim: claim, class: class, volumes: volumes, only: len(volumes) == 1 && volumes[0].Spec.ClaimRef != nil})
	return ""
}

// ownClaim says whether a claim is made for one of the pod's volumes.
func ownClaim(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Ephemeral != nil && api.ClaimName(pod, &v) == name })
}

// reach says whether a node is where the pod's volumes are, or can be.
func (t *trial) reach(slot int) reason {
	node := t.b.spots[slot].node
	for _, v := range t.wants.reached {
		if !v.reaches(node) {
			return elsewhere
		}
	}
	if _, ok := t.choices(node); !ok {
		return noVolume
	}
	return fits
}

// choices are the volumes that the pod's loose claims get on a node, in their order,
// nil for one that is made. ok is false when one of them gets none.
func (t *trial) choices(node *corev1.Node) (out []*volume, ok bool) {
	for _, l := range t.wants.loose {
		i := slices.IndexFunc(l.volumes, func(v *volume) bool { return v.reaches(node) && !slices.Contains(out, v) })
		switch {
		case i >= 0:
			out = append(out, l.volumes[i])
		case !l.only && provides(l.class, node):
			out = append(out, nil)
		default:
			return nil, false
		}
	}
	return out, true
}

// exclusive says whether another pod has a claim that only one may have.
func (t *trial) exclusive() bool {
	return slices.ContainsFunc(t.wants.alone, func(key store.Key) bool { return t.b.shelf.users[key] > 0 })
}

// bindClaims makes the pod's loose claims be bound by the plan, for a pod that goes to
// a node.
func (t *trial) bindClaims(d *decision, node *corev1.Node) error {
	d.held = t.wants.held
	chosen, ok := t.choices(node)
	if !ok {
		return fmt.Errorf("node %s has no volumes for pod %s/%s any more", node.Name, t.r.pod.Namespace, t.r.pod.Name)
	}
	for i, l := range t.wants.loose {
		p := &promise{claim: l.claim}
		var volume *corev1.PersistentVolume
		var err error
		if v := chosen[i]; v != nil {
			p.found = v.PersistentVolume
			volume, p.bound, err = binding.Bind(v.PersistentVolume, l.claim)
		} else {
			volume, p.bound, err = binding.Provision(l.claim, l.class, node)
		}
		if err != nil {
			return err
		}
		p.volume = readVolume(volume)
		t.b.promise(p)
		d.binds = append(d.binds, p)
	}
	return nil
}
