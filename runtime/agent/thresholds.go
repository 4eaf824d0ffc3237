package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is a figure of the machine that can run low; Kubernetes' names.
type Signal string

const (
	MemoryAvailable Signal = "memory.available"
	DiskAvailable   Signal = "nodefs.available"
	DiskInodes      Signal = "nodefs.inodesFree"
	ImageAvailable  Signal = "imagefs.available"
	ImageInodes     Signal = "imagefs.inodesFree"
	PIDAvailable    Signal = "pid.available"
)

// signals are all of them, in the order in which pressure is dealt with: of two that
// are low at one time, memory comes first.
func signals() []Signal {
	return []Signal{MemoryAvailable, DiskAvailable, DiskInodes, ImageAvailable, ImageInodes, PIDAvailable}
}

// Threshold is how low a signal may get.
type Threshold struct {
	Signal   Signal
	Quantity int64         // bytes, inodes or processes
	Percent  float64       // of what the machine has; 0: Quantity says it
	Grace    time.Duration // how long it may be lower before a pod is evicted
	Soft     bool          // the pod has its own time to stop
}

// least is the threshold in the signal's unit on a machine that has so much.
func (t Threshold) least(capacity int64) int64 {
	if t.Percent > 0 {
		return int64(float64(capacity) * t.Percent / 100)
	}
	return t.Quantity
}

// DefaultEvictionHard are Kubernetes' thresholds where nobody gives others.
const DefaultEvictionHard = "memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%"

// ParseThresholds reads thresholds in Kubernetes' form, signal<quantity or
// signal<share%, separated by commas; soft ones each have a grace, signal=duration.
func ParseThresholds(hard, soft, grace string) ([]Threshold, error) {
	out, err := parseThresholds(hard, "<")
	if err != nil {
		return nil, err
	}
	more, err := parseThresholds(soft, "<")
	if err != nil {
		return nil, err
	}
	graces, err := pairs(grace, "=")
	if err != nil {
		return nil, err
	}
	for _, t := range more {
		text, ok := graces[string(t.Signal)]
		if !ok {
			return nil, fmt.Errorf("the soft threshold of %s has no grace period", t.Signal)
		}
		delete(graces, string(t.Signal))
		if t.Grace, err = time.ParseDuration(text); err != nil || t.Grace <= 0 {
			return nil, fmt.Errorf("grace period %s=%s: give a duration such as 1m30s", t.Signal, text)
		}
		t.Soft = true
		out = append(out, t)
	}
	for _, name := range slices.Sorted(maps.Keys(graces)) {
		return nil, fmt.Errorf("a grace period for %s, which has no soft threshold", name)
	}
	return out, nil
}

func parseThresholds(text, operator string) ([]Threshold, error) {
	given, err := pairs(text, operator)
	if err != nil {
		return nil, err
	}
	var out []Threshold
	for _, s := range signals() {
		value, ok := given[string(s)]
		if !ok {
			continue
		}
		delete(given, string(s))
		t := Threshold{Signal: s}
		if share, isShare := strings.CutSuffix(value, "%"); isShare {
			t.Percent, err = strconv.ParseFloat(share, 64)
			if err != nil || !(t.Percent >= 0 && t.Percent < 100) {
				return nil, fmt.Errorf("%s%s%s: give a share from 0%% to less than 100%%", s, operator, value)
			}
		} else {
			q, err := resource.ParseQuantity(value)
			if err != nil || q.Sign() < 0 {
				return nil, fmt.Errorf("%s%s%s: give a quantity such as 100Mi, or a share such as 5%%", s, operator, value)
			}
			t.Quantity = q.Value()
		}
		out = append(out, t)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		return nil, fmt.Errorf("unknown eviction signal %s: there are %s", name, joinSignals())
	}
	return out, nil
}

func joinSignals() string {
	var names []string
	for _, s := range signals() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// pairs reads name<value, name<value.
func pairs(text, operator string) (map[string]string, error) {
	out := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, operator)
		if !ok || name == "" || value == "" {
			return nil, fmt.Errorf("%q: give it as name%svalue", part, operator)
		}
		if has(out, name) {
			return nil, fmt.Errorf("%q: %s is given twice", part, name)
		}
		out[name] = value
	}
	return out, nil
}

// ParseReserved reads what is kept for the machine itself: cpu=500m,memory=1Gi.
func ParseReserved(given map[string]string) (corev1.ResourceList, error) {
	out := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		switch corev1.ResourceName(name) {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			return nil, fmt.Errorf("%s=%s: only cpu, memory and ephemeral-storage can be reserved", name, given[name])
		}
		q, err := resource.ParseQuantity(given[name])
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("%s=%s: give a quantity such as 500m or 1Gi", name, given[name])
		}
		out[corev1.ResourceName(name)] = q
	}
	return out, nil
}
