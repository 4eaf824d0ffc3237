package api

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Group is the API group of Headway's own kinds, Version their version.
const (
	Group   = "headway.dev"
	Version = "v1"
)

// Source is what the cluster follows: a repository, a ref and a path. The one that
// the servers are started with is named MainSource, and what it applies makes, changes
// and removes the others. Each one's syncer alone writes its status, and takes off the
// orders that are done; operators give orders through any server. One that is marked
// as deleted is followed no longer: what it has made is being let go.
type Source struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SourceSpec   `json:"spec"`
	Orders            SourceOrders `json:"orders,omitempty"`
	Status            SourceStatus `json:"status,omitempty"`
}

// SourceOrders is what operators want of a source beside its commits.
type SourceOrders struct {
	Sync  string     `json:"sync,omitempty"`  // a look at the repository that was asked for; status.synced answers
	Allow *Allowance `json:"allow,omitempty"` // not yet used
	Pause *Pause     `json:"pause,omitempty"`
}

// Allowance lets one commit pass what would refuse it, once.
type Allowance struct {
	Commit   string      `json:"commit"`
	Rewind   bool        `json:"rewind,omitempty"`   // although it is no descendant of the applied one (R1)
	Unsigned bool        `json:"unsigned,omitempty"` // although nobody has signed it who may
	By       string      `json:"by"`                 // name of the operator's certificate
	Why      string      `json:"why"`
	At       metav1.Time `json:"at"`
}

// Pause stops applying and healing for a time.
type Pause struct {
	Since metav1.Time `json:"since"`
	Until metav1.Time `json:"until"`
	By    string      `json:"by"` // name of the operator's certificate
	Why   string      `json:"why"`
	// EndedBy is who ended it before its time, or put another in its place.
	EndedBy string `json:"endedBy,omitempty"`
}

// EndedPause is a pause that is over.
type EndedPause struct {
	Pause  `json:",inline"`
	Ended  metav1.Time `json:"ended"`
	Commit string      `json:"commit,omitempty"` // that was applied meanwhile
}

// MaxPauses bounds SourceStatus.Pauses.
const MaxPauses = 20

// Bounds of a pause, and of what an operator gives as the reason of an order, in
// bytes.
const (
	MinPause = time.Minute
	MaxPause = 30 * 24 * time.Hour
	MaxWhy   = 500
)

// MainSource is the name of the source that the servers are started with. The others
// are further ones, which its configuration names.
const MainSource = "main"

// SourceSpec says where commits come from. An empty URL means the hosted
// repository, whose refs are GitRef objects.
type SourceSpec struct {
	URL  string `json:"url,omitempty"`
	Ref  string `json:"ref,omitempty"`  // full ref name; default refs/heads/main
	Path string `json:"path,omitempty"` // folder inside the tree; default the root
	// Namespaces that a further source may write to; "*" alone: all. The main source
	// has none, and may write everywhere.
	Namespaces []string `json:"namespaces,omitempty"`
	Poll       Duration `json:"pollInterval,omitzero"` // of a further source; unless its own configuration says
}

// Further says whether another source's configuration names this one.
func (s SourceSpec) Further() bool { return len(s.Namespaces) > 0 }

// WritesTo says whether the source may write to a namespace; "" stands for
// objects in none, which only a source with every namespace may write.
func (s SourceSpec) WritesTo(namespace string) bool {
	if !s.Further() {
		return true
	}
	for _, n := range s.Namespaces {
		if n == everyNamespace || n == namespace && n != "" {
			return true
		}
	}
	return false
}

// Equal says whether two say the same.
func (s SourceSpec) Equal(o SourceSpec) bool {
	return s.URL == o.URL && s.Ref == o.Ref && s.Path == o.Path && s.Poll == o.Poll && slices.Equal(s.Namespaces, o.Namespaces)
}

// SourceStatus is how far the cluster has come.
type SourceStatus struct {
	Head        string      `json:"head,omitempty"`    // newest commit seen on the ref
	Applied     string      `json:"applied,omitempty"` // the applied commit: all its declared objects are in the store
	AppliedTime metav1.Time `json:"appliedTime,omitempty"`
	Path        string      `json:"path,omitempty"`      // folder that the applied commit's manifests stand in
	Applying    string      `json:"applying,omitempty"`  // commit that is being applied now; empty when none
	Refused     string      `json:"refused,omitempty"`   // commit that was refused; empty when the newest one was accepted
	Message     string      `json:"message,omitempty"`   // why: of a refusal, a failed fetch, a rewound branch
	Problems    []string    `json:"problems,omitempty"`  // each as path:line: field: reason; at most 100
	WriteBack   string      `json:"writeBack,omitempty"` // why the live ref and the notes do not reach the forge; empty when they do
	// CommitStatus is why commit statuses do not reach the forge; empty when they do.
	CommitStatus string     `json:"commitStatus,omitempty"`
	Objects      int        `json:"objects,omitempty"` // number of declared objects of the applied commit
	Used         *Allowance `json:"used,omitempty"`    // what an operator had to allow for the applied commit
	Synced       string     `json:"synced,omitempty"`  // orders.sync that was answered last
	Pause        *Pause     `json:"pause,omitempty"`   // that holds, as far as the leader has seen
	// Pauses are those that are over, newest last.
	Pauses []EndedPause `json:"pauses,omitempty"`
}

// GitRef is the truth of one ref of the hosted repository (D8). Its object name
// is the ref's name, hex-encoded; Ref has it readable.
type GitRef struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Ref               string `json:"ref"`    // refs/heads/main
	Commit            string `json:"commit"` // 40 hex digits; a deleted ref has no object
	Pusher            string `json:"pusher,omitempty"`
}

// DoneRecord says that a declared Job finished, so that it is not run again
// until its manifest changes (R3). Same namespace and name as the Job.
type DoneRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Source            string      `json:"source"`
	Hash              string      `json:"hash"`    // ManifestHash of the manifest that ran
	Outcome           string      `json:"outcome"` // Complete or Failed
	FinishedAt        metav1.Time `json:"finishedAt"`
}

// Authority is the cluster's certificate authority, or, without a certificate, the key
// that signs the tokens of ServiceAccounts; sealed in the store.
type Authority struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Certificate       []byte `json:"certificate"` // PEM
	Key               []byte `json:"key"`         // PEM
}

// JoinToken lets one machine become a node, once, until it expires. Its object
// name is the token's public id.
type JoinToken struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	SecretHash        []byte      `json:"secretHash"` // SHA-256 of the secret half
	Expires           metav1.Time `json:"expires"`
}

func (s *Source) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Namespaces = slices.Clone(s.Spec.Namespaces)
	out.Status.Problems = append([]string(nil), s.Status.Problems...)
	out.Status.Pauses = slices.Clone(s.Status.Pauses)
	s.Status.AppliedTime.DeepCopyInto(&out.Status.AppliedTime)
	// Allowances and pauses are replaced as a whole, never changed.
	return &out
}

func (r *GitRef) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

func (d *DoneRecord) DeepCopyObject() runtime.Object {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	d.FinishedAt.DeepCopyInto(&out.FinishedAt)
	return &out
}

func (a *Authority) DeepCopyObject() runtime.Object {
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Certificate = append([]byte(nil), a.Certificate...)
	out.Key = append([]byte(nil), a.Key...)
	return &out
}

func (t *JoinToken) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.SecretHash = append([]byte(nil), t.SecretHash...)
	t.Expires.DeepCopyInto(&out.Expires)
	return &out
}
