package api

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ObjectRef names one object.
type ObjectRef struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// RefTo names an object of a kind.
func RefTo(k Kind, namespace, name string) ObjectRef {
	return ObjectRef{Group: k.Group, Kind: k.Kind, Resource: k.Resource, Namespace: namespace, Name: name}
}

// GroupResource returns the group and the plural name.
func (r ObjectRef) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}
}

// Title is how messages name the object: Deployment default/web.
func (r ObjectRef) Title() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// RecordName is the name of an Edit, a DriftRecord or a SlotRecord about an object: one for
// each, whatever the length of its own name.
func RecordName(gr schema.GroupResource, namespace, name string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{gr.Group, gr.Resource, namespace, name}, "/")))
	return hex.EncodeToString(sum[:])
}

// Actor is who wrote to an object.
type Actor struct {
	User    string `json:"user,omitempty"`    // of the API; "" when nobody signed in did it
	Manager string `json:"manager,omitempty"` // the program's name for itself: kubectl-edit
	Verb    string `json:"verb,omitempty"`    // update, patch, patch scale, delete
}

// Bounds of an Actor's texts, in bytes.
const (
	maxActorUser    = 256
	maxActorManager = 128
)

// Bounded is a with texts that are no longer than a record keeps.
func (a Actor) Bounded() Actor {
	a.User, a.Manager, a.Verb = bounded(a.User, maxActorUser), bounded(a.Manager, maxActorManager), bounded(a.Verb, maxActorManager)
	return a
}

func bounded(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// String is for people: admin (kubectl-edit).
func (a Actor) String() string {
	switch {
	case a.User == "" && a.Manager == "":
		return "unknown"
	case a.User == "":
		return Printable(a.Manager)
	case a.Manager == "":
		return Printable(a.User)
	}
	return Printable(a.User + " (" + a.Manager + ")")
}

// Edit says who last changed a declared object through the API. The API server
// writes it in the transaction of the change, so whoever sees the change knows who
// made it; the syncer deletes it once it has looked at the object. There is at most
// one for each object.
type Edit struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"` // the name is RecordName
	Object            ObjectRef                   `json:"object"`
	Source            string                      `json:"source"` // that declares the object
	Actor             Actor                       `json:"actor"`
	Time              metav1.MicroTime            `json:"time"`
}

func (e *Edit) DeepCopyObject() runtime.Object {
	out := *e
	e.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	e.Time.DeepCopyInto(&out.Time)
	return &out
}
