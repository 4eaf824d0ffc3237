package scheduler

import (
	"cmp"
	"fmt"
	"slices"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// shelf is the claims, volumes and classes that there are, and what a plan has bound
// of them.
type shelf struct {
	claims  map[store.Key]*corev1.PersistentVolumeClaim
	volumes map[string]*volume // by name
	classes map[string]*storagev1.StorageClass

	promised map[store.Key]*promise // by the plan, by claim
	taken    map[string]store.Key   // whose the promised volumes are
	users    map[store.Key]int      // pods on nodes by claim
}

func newShelf() *shelf {
	return &shelf{claims: map[store.Key]*corev1.PersistentVolumeClaim{}, volumes: map[string]*volume{}, classes: map[string]*storagev1.StorageClass{},
		promised: map[store.Key]*promise{}, taken: map[string]store.Key{}, users: map[store.Key]int{}}
}

// volume is a PersistentVolume and from where it can be reached.
type volume struct {
	*corev1.PersistentVolume
	where *nodeaffinity.NodeSelector // nil: from everywhere
	err   error                      // its affinity cannot be read: from nowhere
}

func readVolume(v *corev1.PersistentVolume) *volume {
	out := &volume{PersistentVolume: v}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		out.where, out.err = nodeaffinity.NewNodeSelector(a.Required)
	}
	return out
}

func (v *volume) reaches(node *corev1.Node) bool {
	return v.err == nil && (v.where == nil || v.where.Match(node))
}

// promise is a claim that is bound when the plan is carried out.
type promise struct {
	claim  *corev1.PersistentVolumeClaim // as read
	found  *corev1.PersistentVolume      // as read; nil for one that is made
	volume *volume                       // as it will be
	bound  *corev1.PersistentVolumeClaim // the claim, as it will be
}

// claimsOf are the claims that a pod's volumes are of.
func claimsOf(pod *corev1.Pod) (out []store.Key) {
	for i := range pod.Spec.Volumes {
		if name := api.ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			if key := claimKey(pod.Namespace, name); !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

func claimKey(namespace, name string) store.Key {
	return store.Key{GroupResource: api.PersistentVolumeClaims(), Namespace: namespace, Name: name}
}

func (s *shelf) setClaim(key store.Key, claim *corev1.PersistentVolumeClaim) {
	if claim == nil {
		delete(s.claims, key)
		return
	}
	s.claims[key] = claim
}

func (s *shelf) setVolume(name string, v *corev1.PersistentVolume) {
	switch was := s.volumes[name]; {
	case v == nil:
		delete(s.volumes, name)
	case was == nil || was.PersistentVolume != v:
		s.volumes[name] = readVolume(v)
	}
}

func (s *shelf) setClass(name string, class *storagev1.StorageClass) {
	if class == nil {
		delete(s.classes, name)
		return
	}
	s.classes[name] = class
}

// each tells the keys of all that there is.
func (s *shelf) each(tell func(store.Key)) {
	for key := range s.claims {
		tell(key)
	}
	for name := range s.volumes {
		tell(store.Key{GroupResource: api.PersistentVolumes(), Name: name})
	}
	for name := range s.classes {
		tell(store.Key{GroupResource: api.StorageClasses(), Name: name})
	}
}

// promise binds a claim for the rest of the plan; undo takes it back.
func (b *board) promise(p *promise) {
	key := store.KeyOf(p.claim)
	b.journal = append(b.journal, change{what: promised, claim: key, version: b.version})
	b.changed()
	b.shelf.promised[key], b.shelf.taken[p.volume.Name] = p, key
}

func (s *shelf) unpromise(key store.Key) {
	delete(s.taken, s.promised[key].volume.Name)
	delete(s.promised, key)
}

// find is the volume that a claim has, or will have by the plan; nil for none.
func (s *shelf) find(key store.Key, claim *corev1.PersistentVolumeClaim) (*volume, bool) {
	if p := s.promised[key]; p != nil {
		return p.volume, true
	}
	if !binding.Complete(claim) {
		return nil, false
	}
	if v := s.volumes[claim.Spec.VolumeName]; v != nil && binding.Holds(v.PersistentVolume, claim) {
		return v, true
	}
	return nil, true
}

// provides says whether a volume of a class can be made on a node.
func provides(class *storagev1.StorageClass, node *corev1.Node) bool {
	return api.LocalClassOf(class) && node.Annotations[api.VolumesDirAnnotation] != "" && binding.Allows(class, node)
}

// candidates are the declared volumes that a claim without one may have, the best
// first.
func (s *shelf) candidates(claim *corev1.PersistentVolumeClaim) ([]*volume, error) {
	var free []*corev1.PersistentVolume
	for name, v := range s.volumes {
		if ref := v.Spec.ClaimRef; ref != nil && (ref.Name != claim.Name || ref.Namespace != claim.Namespace) {
			continue
		}
		if _, taken := s.taken[name]; !taken {
			free = append(free, v.PersistentVolume)
		}
	}
	slices.SortFunc(free, func(a, b *corev1.PersistentVolume) int { return cmp.Compare(a.Name, b.Name) })
	list, err := binding.Candidates(claim, free)
	if err != nil {
		return nil, fmt.Errorf("volumes for a claim: %w", err)
	}
	out := make([]*volume, 0, len(list))
	for _, v := range list {
		out = append(out, s.volumes[v.Name])
	}
	return out, nil
}
