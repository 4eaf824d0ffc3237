package podset

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/api"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Template is what an owner of ControllerRevisions makes pods of now.
type Template struct {
	Owner      api.Object
	Pod        *corev1.PodTemplateSpec
	Refs       map[string]string // declared content that it refers to (D13)
	Collisions *int32            // of names, as the owner's status counts them
	HashLabel  string            // of a revision: holds its hash
}

// Revision is the ControllerRevision that serves a template.
type Revision struct {
	Is         *appsv1.ControllerRevision // nil: not there yet
	To         *appsv1.ControllerRevision // as it shall be; a new one is not stamped
	Collisions *int32                     // as the owner's status must count them
}

// Changed says whether the revision is to be written.
func (r Revision) Changed() bool {
	return r.Is == nil || r.Is.Revision != r.To.Revision || !maps.Equal(r.Is.Annotations, r.To.Annotations) ||
		len(r.Is.OwnerReferences) != len(r.To.OwnerReferences)
}

// Hash is the end of the revision's name.
func (r Revision) Hash() string { return r.To.Name[strings.LastIndexByte(r.To.Name, '-')+1:] }

// SortRevisions sorts a history, the oldest first.
func SortRevisions(history []*appsv1.ControllerRevision) {
	slices.SortFunc(history, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// ChooseRevision finds the revision of a sorted history that has the template and
// of which no recorded content has changed; of several the newest. One that is not
// the last of the history is being rolled back to and becomes the last. When there
// is none it makes one, under the first name that is free. What is not recorded yet
// is filled in, which changes no pod (D13).
func ChooseRevision(t Template, history []*appsv1.ControllerRevision, taken func(name string) bool) (Revision, error) {
	data, err := revisionData(t.Pod)
	if err != nil {
		return Revision{}, err
	}
	next := int64(1)
	if len(history) > 0 {
		next = history[len(history)-1].Revision + 1
	}
	if is := equalRevision(t, history, data); is != nil {
		to := is.DeepCopy()
		if is != history[len(history)-1] {
			to.Revision = next
		}
		FillRefs(to, t.Refs)
		return Revision{Is: is, To: to, Collisions: t.Collisions}, nil
	}
	r := Revision{Collisions: t.Collisions}
	for {
		hash := revisionHash(data, r.Collisions)
		name := revisionName(t.Owner.GetName(), hash)
		if !taken(name) {
			r.To = newRevision(t, name, hash, data, next)
			return r, nil
		}
		n := int32(1)
		if r.Collisions != nil {
			n = *r.Collisions + 1
		}
		r.Collisions = &n
	}
}

// equalRevision compares the bytes first, and only if none are the same what they
// mean, with the defaults of this version: an upgrade rolls nothing.
func equalRevision(t Template, history []*appsv1.ControllerRevision, data []byte) *appsv1.ControllerRevision {
	find := func(same func(*appsv1.ControllerRevision) bool) *appsv1.ControllerRevision {
		for _, r := range slices.Backward(history) {
			if same(r) && SameRefs(RecordedRefs(r), t.Refs) {
				return r
			}
		}
		return nil
	}
	if r := find(func(r *appsv1.ControllerRevision) bool { return bytes.Equal(r.Data.Raw, data) }); r != nil {
		return r
	}
	wanted := defaulted(t.Pod)
	return find(func(r *appsv1.ControllerRevision) bool {
		before, err := RevisionTemplate(r)
		return err == nil && equality.Semantic.DeepEqual(defaulted(before), wanted)
	})
}

func defaulted(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	d := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: *t.DeepCopy()}}
	api.Scheme().Default(d)
	return &d.Spec.Template
}

func newRevision(t Template, name, hash string, data []byte, number int64) *appsv1.ControllerRevision {
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Owner.GetNamespace(), Name: name,
			Labels:          maps.Clone(t.Pod.Labels),
			Annotations:     map[string]string{},
			OwnerReferences: []metav1.OwnerReference{Controller(t.Owner)},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	}
	if r.Labels == nil {
		r.Labels = map[string]string{}
	}
	r.Labels[t.HashLabel] = hash
	for key, value := range t.Owner.GetAnnotations() {
		// Not what tells about the owner itself: its provenance would make the
		// revision look declared.
		if key != corev1.LastAppliedConfigAnnotation && !strings.HasPrefix(key, "headway.dev/") {
			r.Annotations[key] = value
		}
	}
	FillRefs(r, t.Refs)
	return r
}

// revisionData is a patch that puts a template back, in the form that Kubernetes'
// tools read.
func revisionData(template *corev1.PodTemplateSpec) ([]byte, error) {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(template)
	if err != nil {
		return nil, fmt.Errorf("encode a pod template: %w", err)
	}
	raw["$patch"] = "replace"
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": raw}})
	if err != nil {
		return nil, fmt.Errorf("encode a pod template: %w", err)
	}
	return data, nil
}

// RevisionTemplate is the template that a revision keeps.
func RevisionTemplate(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var kept struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &kept); err != nil {
		return nil, fmt.Errorf("read the template of controller revision %s: %w", r.Name, err)
	}
	if kept.Spec.Template == nil {
		return nil, fmt.Errorf("controller revision %s keeps no template", r.Name)
	}
	return kept.Spec.Template, nil
}

// revisionHash is Kubernetes' own.
func revisionHash(data []byte, collisions *int32) string {
	h := fnv.New32()
	h.Write(data)
	n := int64(0)
	if collisions != nil {
		n = int64(*collisions)
	}
	h.Write(strconv.AppendInt(nil, n, 10))
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

func revisionName(owner, hash string) string {
	const most = 223
	return owner[:min(len(owner), most)] + "-" + hash
}

// PastRevisions lists what a sorted history need not keep: the oldest of those that
// nothing uses, beyond limit.
func PastRevisions(history []*appsv1.ControllerRevision, used func(*appsv1.ControllerRevision) bool, limit *int32) []*appsv1.ControllerRevision {
	if limit == nil || *limit < 0 {
		return nil
	}
	var past []*appsv1.ControllerRevision
	for _, r := range history {
		if r.DeletionTimestamp == nil && !used(r) {
			past = append(past, r)
		}
	}
	return past[:max(0, len(past)-int(*limit))]
}
