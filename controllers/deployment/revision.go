package deployment

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"headway.dev/headway/internal/podset"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Annotations that Kubernetes' tools read.
const (
	annotationRevision = "deployment.kubernetes.io/revision"
	annotationHistory  = "deployment.kubernetes.io/revision-history"
	annotationDesired  = "deployment.kubernetes.io/desired-replicas"
	annotationMax      = "deployment.kubernetes.io/max-replicas"
)

// maxHistory bounds the revision history of a set, in characters.
const maxHistory = 2000

// maxName is the longest name of a ReplicaSet.
const maxName = 253

// fresh is how a new ReplicaSet would be called.
type fresh struct {
	name, hash string
	collisions *int32 // as the Deployment's status must count them for this hash
}

// freshName finds the first name that is free. A name is taken by a set whose
// template has the same hash and is not the same, or whose referred content has
// changed since.
func freshName(d *appsv1.Deployment, taken func(name string) bool) fresh {
	f := fresh{collisions: d.Status.CollisionCount}
	for {
		f.hash = templateHash(&d.Spec.Template, f.collisions)
		base := d.Name
		if most := maxName - 1 - len(f.hash); len(base) > most {
			base = base[:most]
		}
		f.name = base + "-" + f.hash
		if !taken(f.name) {
			return f
		}
		next := int32(1)
		if f.collisions != nil {
			next = *f.collisions + 1
		}
		f.collisions = &next
	}
}

// templateHash is Kubernetes' own, so that names look the same and a set made by
// Kubernetes is found under its name.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(*template))
	if collisions != nil {
		var b [8]byte
		binary.LittleEndian.PutUint32(b[:], uint32(*collisions))
		h.Write(b[:])
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// sameTemplate compares templates without the hash label.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	if !equality.Semantic.DeepEqual(a.Spec, b.Spec) {
		return false
	}
	am, bm := a.ObjectMeta, b.ObjectMeta
	am.Labels, bm.Labels = withoutHash(am.Labels), withoutHash(bm.Labels)
	return equality.Semantic.DeepEqual(am, bm)
}

func withoutHash(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, appsv1.DefaultDeploymentUniqueLabelKey)
	return out
}

// current finds the set that serves the Deployment's template and referred
// content: of several the oldest.
func current(o *observed) *set {
	for _, s := range o.sets {
		if sameTemplate(&s.is.Spec.Template, &o.deployment.Spec.Template) && podset.SameRefs(podset.RecordedRefs(s.is), o.refs) {
			return s
		}
	}
	return nil
}

func revisionOf(rs *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(rs.Annotations[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// annotate sets an annotation. rs is the plan's own copy, its annotations are too.
func annotate(rs *appsv1.ReplicaSet, key, value string) {
	if rs.Annotations == nil {
		rs.Annotations = map[string]string{}
	}
	rs.Annotations[key] = value
}

// annotateSize notes on a set how large the Deployment was when it was scaled,
// from which proportional scaling works.
func annotateSize(rs *appsv1.ReplicaSet, r room) {
	annotate(rs, annotationDesired, strconv.Itoa(r.desired))
	annotate(rs, annotationMax, strconv.Itoa(r.desired+r.surge))
}

// annotateCurrent brings the annotations of the current set up to date: those of
// the Deployment, and the revision, which must be the highest of all. A set that
// gets a higher revision again is being rolled back to, and remembers the old one.
func annotateCurrent(rs *appsv1.ReplicaSet, d *appsv1.Deployment, revision int64) {
	for _, key := range slices.Sorted(maps.Keys(d.Annotations)) {
		if copied(key) {
			annotate(rs, key, d.Annotations[key])
		}
	}
	before := revisionOf(rs)
	if before >= revision {
		return
	}
	if old := rs.Annotations[annotationRevision]; old != "" {
		history := old
		if h := rs.Annotations[annotationHistory]; h != "" {
			history = h + "," + old
		}
		for len(history) > maxHistory {
			_, rest, more := strings.Cut(history, ",")
			if !more {
				break
			}
			history = rest
		}
		annotate(rs, annotationHistory, history)
	}
	annotate(rs, annotationRevision, strconv.FormatInt(revision, 10))
}

// copied says whether a set gets a Deployment's annotation: not what tells about
// the Deployment itself. Its provenance above all, which would make the set look
// declared.
func copied(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, appsv1.DeprecatedRollbackTo,
		annotationRevision, annotationHistory, annotationDesired, annotationMax:
		return false
	}
	return !strings.HasPrefix(key, "headway.dev/")
}
