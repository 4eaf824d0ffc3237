package syncer

import (
	"encoding/json"
	"slices"
	"time"

	"headway.dev/headway/api"
)

// DriftReport is what differs from the applied commit, or did lately. Its JSON is
// what `headway drift -o json` prints: names in it do not change.
type DriftReport struct {
	Source    string          `json:"source"`
	Applied   string          `json:"applied,omitempty"`
	WriteBack string          `json:"writeBack,omitempty"` // why the live ref does not reach the forge
	Objects   []DriftedObject `json:"objects"`             // those that differ now first, the latest first
	Runtime   []RuntimeDrift  `json:"runtime"`             // what differs on the nodes
}

// DriftedObject is one declared object that differs, or did.
type DriftedObject struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Namespace  string         `json:"namespace,omitempty"`
	Name       string         `json:"name"`
	Path       string         `json:"path"`
	Line       int            `json:"line"`
	Commit     string         `json:"commit"` // the applied commit that it was compared with
	Deleted    bool           `json:"deleted,omitempty"`
	Fields     []DriftedField `json:"fields,omitempty"`
	By         api.Actor      `json:"by"`
	Since      time.Time      `json:"since"`
	Healed     *time.Time     `json:"healed,omitempty"` // nothing: it differs now
	HealedBy   string         `json:"healedBy,omitempty"`
	Why        string         `json:"why,omitempty"` // why it was not put back
	Fight      bool           `json:"fight,omitempty"`
}

// DriftedField is one declared field that differs, or did.
type DriftedField struct {
	Field    string          `json:"field"`
	Declared json.RawMessage `json:"declared,omitempty"`
	Live     json.RawMessage `json:"live,omitempty"`
	Hidden   bool            `json:"hidden,omitempty"`
	By       api.Actor       `json:"by"`
	Since    time.Time       `json:"since"`
}

// Title is how messages name the object: Deployment default/web.
func (o DriftedObject) Title() string { return title(o.Kind, o.Namespace, o.Name) }

// String is the field on one line: spec.replicas 3 → 5.
func (f DriftedField) String() string {
	return FieldChange{Field: f.Field, Old: f.Declared, New: f.Live, Hidden: f.Hidden}.String()
}

// Drift reports from the cache. Any server may be asked.
func (s *Syncer) Drift() DriftReport {
	r := DriftReport{Source: s.cfg.Source, Objects: []DriftedObject{}, Runtime: s.runtimeDrift()}
	if src := s.source(); src != nil {
		r.Applied, r.WriteBack = src.Status.Applied, src.Status.WriteBack
	}
	records := s.driftRecords()
	slices.SortFunc(records, func(a, b *api.DriftRecord) int {
		if a.Open() != b.Open() {
			if a.Open() {
				return -1
			}
			return 1
		}
		if c := b.Since.Compare(a.Since.Time); c != 0 {
			return c
		}
		return compareKeys(keyOfRef(a.Object), keyOfRef(b.Object))
	})
	for _, d := range records {
		r.Objects = append(r.Objects, driftedObject(d))
	}
	return r
}

func driftedObject(d *api.DriftRecord) DriftedObject {
	kind, _ := api.ResourceKind(d.Object.GroupResource())
	o := DriftedObject{
		APIVersion: kind.GroupVersion().String(), Kind: d.Object.Kind, Namespace: d.Object.Namespace, Name: d.Object.Name,
		Path: d.Path, Line: d.Line, Commit: d.Commit, Deleted: d.Deleted, By: d.Actor, Since: d.Since.UTC(), Why: d.Why, Fight: d.Fight,
	}
	for _, f := range d.Fields {
		o.Fields = append(o.Fields, DriftedField{Field: f.Path, Declared: f.Declared, Live: f.Live, Hidden: f.Hidden, By: f.Actor, Since: f.Since.UTC()})
	}
	if d.Healed != nil {
		t := d.Healed.UTC()
		o.Healed, o.HealedBy = &t, "Headway"
		switch {
		case d.Healer != (api.Actor{}):
			o.HealedBy = d.Healer.String()
		case d.LastHeal == nil || !d.LastHeal.Equal(d.Healed):
			o.HealedBy = "" // a commit, or somebody who did not sign in
		}
	}
	return o
}
