package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MaxDriftLive bounds DriftRecord.Live, in bytes.
const MaxDriftLive = 256 << 10

// DriftRecord says in which declared fields an object was found to differ from the
// applied commit. It is written before the fields are put back, or with them, and
// is the intent of what the live ref tells (R4). There is at most one for each
// declared object. Its JSON is what `headway drift -o json` prints.
type DriftRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"` // the name is RecordName
	Source            string                      `json:"source"`
	Commit            string                      `json:"commit"` // the applied commit that it differs from
	Path              string                      `json:"path"`   // of the manifest
	Line              int                         `json:"line"`
	Hash              string                      `json:"hash"` // ManifestHash of the manifest
	Object            ObjectRef                   `json:"object"`
	Deleted           bool                        `json:"deleted,omitempty"` // it is declared and gone, or going
	Fields            []DriftField                `json:"fields,omitempty"`  // sorted by path
	// Live is the object as it was found, without its status and what the cluster
	// assigns; of a Secret, which values are others. Empty when it is gone, and beyond
	// MaxDriftLive.
	Live  json.RawMessage  `json:"live,omitempty"`
	Actor Actor            `json:"actor"` // who changed it last
	Since metav1.MicroTime `json:"since"` // when it was found
	// Changed is when what the live ref does not tell yet was found.
	Changed metav1.MicroTime `json:"changed"`
	// Healed is when the fields were as declared again; nil while they are not.
	Healed *metav1.MicroTime `json:"healed,omitempty"`
	Healer Actor             `json:"healer,omitzero"` // who put it back, when it was not Headway
	Why    string            `json:"why,omitempty"`   // why it has not been put back
	// Heals counts how often the object was put back lately, the last time at LastHeal;
	// FieldHeals counts that for each field, by its path, "" being that it was deleted.
	// Fight says that another writer sets a field again each time.
	Heals      int               `json:"heals,omitempty"`
	LastHeal   *metav1.MicroTime `json:"lastHeal,omitempty"`
	FieldHeals map[string]int    `json:"fieldHeals,omitempty"`
	Fight      bool              `json:"fight,omitempty"`
	// Told is the Digest that the live ref has told; Shown says that it still shows
	// it.
	Told  string `json:"told,omitempty"`
	Shown bool   `json:"shown,omitempty"`
}

// DriftField is one declared field that differs.
type DriftField struct {
	Path     string           `json:"path"`
	Declared json.RawMessage  `json:"declared,omitempty"` // nothing: it is not declared, or Hidden
	Live     json.RawMessage  `json:"live,omitempty"`     // nothing: it is not there, or Hidden
	Hidden   bool             `json:"hidden,omitempty"`   // a Secret's value, or the order of a list
	Actor    Actor            `json:"actor"`
	Since    metav1.MicroTime `json:"since"`
}

// Digest tells two states of a drift apart, whoever made them.
func (d *DriftRecord) Digest() string {
	h := sha256.New()
	e := json.NewEncoder(h)
	type field struct {
		Path           string
		Declared, Live json.RawMessage
	}
	fields := make([]field, len(d.Fields))
	for i, f := range d.Fields {
		fields[i] = field{f.Path, f.Declared, f.Live}
	}
	// None of these can fail to encode: the raw messages come out of an encoder.
	_ = e.Encode(d.Deleted)
	_ = e.Encode(fields)
	_ = e.Encode(d.Live)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Open says whether the drift lasts.
func (d *DriftRecord) Open() bool { return d.Healed == nil }

// Size estimates the bytes of the record in the store.
func (d *DriftRecord) Size() int {
	n := 2048 + len(d.Live) + len(d.Why) + len(d.Path)
	for _, f := range d.Fields {
		n += 512 + len(f.Path) + len(f.Declared) + len(f.Live)
	}
	for path := range d.FieldHeals {
		n += 16 + len(path)
	}
	return n
}

func (d *DriftRecord) DeepCopyObject() runtime.Object {
	out := *d
	d.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Live = slices.Clone(d.Live)
	out.Fields = slices.Clone(d.Fields)
	for i, f := range d.Fields {
		out.Fields[i].Declared, out.Fields[i].Live = slices.Clone(f.Declared), slices.Clone(f.Live)
	}
	out.FieldHeals = maps.Clone(d.FieldHeals)
	out.Healed, out.LastHeal = d.Healed.DeepCopy(), d.LastHeal.DeepCopy()
	return &out
}
