package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"headway.dev/headway/api"
)

// usage is what real workload directories use, from the corpus.
type usage struct {
	PodFields   []string `json:"pod_fields"`
	Directories []struct {
		Kinds     []string `json:"kinds"`      // "Deployment", "Certificate (CRD cert-manager.io)"
		PodFields []int    `json:"pod_fields"` // indices into PodFields
	} `json:"workload_dirs"`
}

// maxUsageBytes bounds the unpacked file.
const maxUsageBytes = 64 << 20

func readUsage(corpus string) (usage, error) {
	var u usage
	f, err := os.Open(filepath.Join(corpus, "usage.json.gz"))
	if err != nil {
		return u, err
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		return u, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	if err := json.NewDecoder(io.LimitReader(unpacked, maxUsageBytes)).Decode(&u); err != nil {
		return u, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	for _, d := range u.Directories {
		for _, i := range d.PodFields {
			if i < 0 || i >= len(u.PodFields) {
				return u, fmt.Errorf("read %s: no pod field %d", f.Name(), i)
			}
		}
	}
	return u, nil
}

// share is how much of what real repositories declare this version takes.
type share struct {
	Directories int `json:"directories"` // that hold a workload
	PodFields   int `json:"podFields"`   // of them, those whose every pod field is acted on or harmless
	Complete    int `json:"complete"`    // of those, the ones whose every kind is acted on or stored without a risk
	Kinds       int `json:"kinds"`       // of all, those whose every kind is, whatever their pod fields
	Allowed     int `json:"allowed"`     // of all, those whose every kind may be declared with allowStored
}

// shareOf counts the directories. A field that the table does not know counts as
// refused. A kind that it does not know is a custom one when the corpus says so, and
// else refused.
func shareOf(u usage) share {
	fields := map[string]bool{}
	for _, f := range api.PodFields() {
		fields[f.Path] = f.Rule.Verdict == api.Acted || f.Rule.Verdict == api.Harmless
	}
	taken, allowed := map[string]bool{}, map[string]bool{}
	for _, r := range api.KindRules() {
		taken[r.Kind] = taken[r.Kind] || r.Verdict != api.Refused && !r.Allowable
		allowed[r.Kind] = allowed[r.Kind] || r.Verdict != api.Refused || r.Allowable
	}
	s := share{Directories: len(u.Directories)}
	for _, d := range u.Directories {
		fit, kinds, asked := true, true, true
		for _, i := range d.PodFields {
			fit = fit && fields[u.PodFields[i]]
		}
		for _, k := range d.Kinds {
			kinds = kinds && taken[k]
			asked = asked && (allowed[k] || strings.Contains(k, " (CRD "))
		}
		count(&s.PodFields, fit)
		count(&s.Complete, fit && kinds)
		count(&s.Kinds, kinds)
		count(&s.Allowed, asked)
	}
	return s
}

func count(n *int, yes bool) {
	if yes {
		*n++
	}
}
