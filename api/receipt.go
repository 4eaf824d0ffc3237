package api

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Receipt is what the cluster did for one commit of a source, and the intent of
// the note on that commit (R4). Its object name is <source>.<commit>. The syncer
// writes it in the very transaction that it tells of; who writes the notes adds
// how the rollout went.
type Receipt struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	ReceiptContent    `json:",inline"`
	Attempt           int64  `json:"attempt"`         // the store's revision when this attempt at the commit began
	Noted             string `json:"noted,omitempty"` // hash of the text that the note is known to have
}

// Result is how far the cluster has come with a commit.
type Result string

const (
	ResultApplying   Result = "Applying"   // its objects are being written
	ResultRollingOut Result = "RollingOut" // applied; not everything is healthy yet
	ResultHealthy    Result = "Healthy"    // applied, and everything that it changed is healthy
	ResultFailed     Result = "Failed"     // applied, and something that it changed has failed
	ResultRefused    Result = "Refused"    // it changes nothing (R2)
	ResultSuperseded Result = "Superseded" // another commit took over before it was done (R13)
)

// Final says whether a result stays: but for a failure, which may recover.
func (r Result) Final() bool { return r != ResultApplying && r != ResultRollingOut }

// ReceiptContent is what the note says. The lists are bounded: what is left out is
// counted. Objects are named as "Deployment default/web".
type ReceiptContent struct {
	Result   Result    `json:"result"`
	Reason   string    `json:"reason,omitempty"` // why it was refused, what has failed, or which commit took over
	Commit   string    `json:"commit"`
	Source   string    `json:"source"`
	Path     string    `json:"path,omitempty"`   // the source's folder
	Server   string    `json:"server,omitempty"` // that did it
	Started  time.Time `json:"started"`
	Applied  time.Time `json:"applied,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`   // when Result became final
	Seconds  float64   `json:"seconds,omitzero"` // from Started to Ended
	Objects  int       `json:"objects"`          // that the commit declares
	Created  int       `json:"created"`
	Updated  int       `json:"updated"`
	Deleted  int       `json:"deleted"`
	Changes  []Changed `json:"changes,omitempty"` // the first of them
	Rollout  []Rollout `json:"rollout,omitempty"` // of what has pods; what is not healthy comes first
	MoreRuns int       `json:"moreRollout,omitzero"`
	Problems []string  `json:"problems,omitempty"`
	Allowed  *Allowed  `json:"allowed,omitempty"` // what an operator had to allow
	Pauses   []Paused  `json:"pauses,omitempty"`  // that ended since the commit before was applied
	Done     []DoneJob `json:"done,omitempty"`    // every declared Job that has finished, whatever commit ran it
	MoreDone int       `json:"moreDone,omitzero"`
}

// Allowed is what an operator let a commit pass, who did, why and when.
type Allowed struct {
	Rewind   bool      `json:"rewind,omitempty"`   // although it was no descendant of the one applied before
	Unsigned bool      `json:"unsigned,omitempty"` // although nobody had signed it who may
	By       string    `json:"by"`
	Why      string    `json:"why"`
	At       time.Time `json:"at"`
}

// Paused is a pause of the cluster, who made it and why.
type Paused struct {
	Since   time.Time `json:"since"`
	Ended   time.Time `json:"ended"`
	By      string    `json:"by"`
	Why     string    `json:"why"`
	EndedBy string    `json:"endedBy,omitempty"` // who ended it before its time
}

// Changed is one object that the commit changed.
type Changed struct {
	Verb   string `json:"verb"` // create, update or delete
	Object string `json:"object"`
}

// Rollout is what became of one object that runs pods.
type Rollout struct {
	Object  string  `json:"object"`
	State   string  `json:"state"`            // Healthy, Progressing, Failed or Missing
	Seconds float64 `json:"seconds,omitzero"` // from Started until it was healthy
	Message string  `json:"message,omitempty"`
	Images  []Ran   `json:"images,omitempty"`
}

// Ran is an image as it was declared and as it was resolved: repository@digest.
type Ran struct {
	Container string `json:"container"`
	Image     string `json:"image"`
	Digest    string `json:"digest"`
}

// DoneJob is the outcome of a declared Job.
type DoneJob struct {
	Kind       string    `json:"kind"` // Job
	Namespace  string    `json:"namespace"`
	Name       string    `json:"name"`
	Hash       string    `json:"hash"`    // ManifestHash of the manifest that ran
	Outcome    string    `json:"outcome"` // Complete or Failed
	FinishedAt time.Time `json:"finishedAt"`
}

// CommitStatus is a status that a forge shall show of a commit, or, settled, one
// that it was sent: the intent of who sends them (R4). Its object name is derived
// from repository, context and commit.
type CommitStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Repository        string `json:"repository"` // https://host/path, never with credentials
	Context           string `json:"context"`
	Commit            string `json:"commit"`
	Ref               string `json:"ref,omitempty"`
	Attempt           int64  `json:"attempt"`
	Revision          int64  `json:"revision"`
	State             string `json:"state"`
	Description       string `json:"description"`
	Settled           bool   `json:"settled,omitempty"`
}

func (r *Receipt) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.ReceiptContent = r.ReceiptContent.Clone()
	return &out
}

// Clone shares no memory with r.
func (r ReceiptContent) Clone() ReceiptContent {
	r.Pauses = slices.Clone(r.Pauses)
	r.Changes, r.Problems, r.Done = slices.Clone(r.Changes), slices.Clone(r.Problems), slices.Clone(r.Done)
	if r.Allowed != nil {
		a := *r.Allowed
		r.Allowed = &a
	}
	r.Rollout = slices.Clone(r.Rollout)
	for i := range r.Rollout {
		r.Rollout[i].Images = slices.Clone(r.Rollout[i].Images)
	}
	return r
}

func (s *CommitStatus) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}
