package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// pressureStays is how long a condition of the node stays after what it tells of was
// seen last, so that pods do not come and go with every few bytes.
const pressureStays = 5 * time.Minute

// strain is what earlier looks at the machine have left.
type strain struct {
	low  map[Threshold]time.Time                // since when a signal has been below
	seen map[corev1.NodeConditionType]time.Time // when a condition was true last
}

// conditionOf is the node's condition that tells of a signal.
func conditionOf(s Signal) corev1.NodeConditionType {
	switch s {
	case MemoryAvailable:
		return corev1.NodeMemoryPressure
	case PIDAvailable:
		return corev1.NodePIDPressure
	default:
		return corev1.NodeDiskPressure
	}
}

// imagesHelp says whether a signal gets better when images are removed: not that of the
// pods' disk where the images are on another one.
func (h Host) imagesHelp(s Signal) bool {
	switch s {
	case ImageAvailable, ImageInodes:
		return true
	case DiskAvailable, DiskInodes:
		images, known := h[ImageAvailable]
		return !known || images.All == h[DiskAvailable].All
	}
	return false
}

// resourceOf is what a signal is short of, as messages call it.
func resourceOf(s Signal) corev1.ResourceName {
	switch s {
	case MemoryAvailable:
		return corev1.ResourceMemory
	case PIDAvailable:
		return "pids"
	case DiskInodes, ImageInodes:
		return "inodes"
	default:
		return corev1.ResourceEphemeralStorage
	}
}

// look holds the machine against the thresholds. due are those that have been met for
// their grace, those of memory first; conditions are the node's that hold now.
func (s strain) look(host Host, thresholds []Threshold, now time.Time) (next strain, due []Threshold, conditions []corev1.NodeConditionType) {
	next = strain{low: map[Threshold]time.Time{}, seen: maps.Clone(s.seen)}
	if next.seen == nil {
		next.seen = map[corev1.NodeConditionType]time.Time{}
	}
	for _, t := range thresholds {
		if level, known := host[t.Signal]; !known || level.Free >= t.least(level.All) {
			continue
		}
		since, was := s.low[t]
		if !was {
			since = now
		}
		next.low[t] = since
		next.seen[conditionOf(t.Signal)] = now
		if now.Sub(since) >= t.Grace {
			due = append(due, t)
		}
	}
	order := signals()
	slices.SortStableFunc(due, func(a, b Threshold) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Signal), slices.Index(order, b.Signal)), cmp.Compare(a.Grace, b.Grace))
	})
	for _, c := range pressures() {
		if at, ever := next.seen[c]; ever && now.Sub(at) < pressureStays {
			conditions = append(conditions, c)
		}
	}
	return next, due, conditions
}

// pressures are the conditions that tell of signals.
func pressures() []corev1.NodeConditionType {
	return []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}
}

// footprint is what a pod takes of the machine.
type footprint struct {
	pod        *corev1.Pod
	volumes    Room // of its emptyDirs on the disk
	containers []use
}

// use is what one container takes.
type use struct {
	name      string
	memory    int64
	written   Room // its layer and its logs
	processes int64
}

func (f footprint) amount(name corev1.ResourceName) int64 {
	var n int64
	for _, c := range f.containers {
		n += c.amount(name)
	}
	switch name {
	case corev1.ResourceEphemeralStorage:
		n += f.volumes.Bytes
	case "inodes":
		n += f.volumes.Inodes
	}
	return n
}

func (u use) amount(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceMemory:
		return u.memory
	case corev1.ResourceEphemeralStorage:
		return u.written.Bytes
	case "inodes":
		return u.written.Inodes
	default:
		return u.processes
	}
}

// rank sorts pods so that those go first that Kubernetes evicts first: who uses more
// than it requested, then who has the lower priority, then who is the farther above its
// request. Nobody requests processes or inodes.
func rank(pods []footprint, s Signal) []footprint {
	name := resourceOf(s)
	over := func(f footprint) int64 {
		requests := requestsOf(f.pod)
		asked := requests[name]
		return f.amount(name) - asked.Value()
	}
	exceeds := func(f footprint) int {
		if resourceOf(s) != "pids" && over(f) > 0 {
			return 0
		}
		return 1
	}
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b footprint) int {
		return cmp.Or(cmp.Compare(exceeds(a), exceeds(b)), cmp.Compare(priority(a.pod), priority(b.pod)),
			cmp.Compare(over(b), over(a)), strings.Compare(string(a.pod.UID), string(b.pod.UID)))
	})
	return out
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// evictionFor is why a pod goes, in Kubernetes' words.
func evictionFor(f footprint, t Threshold, level Level) verdict {
	name := resourceOf(t.Signal)
	quantity := func(n int64) string {
		if name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage {
			return resource.NewQuantity(n, resource.BinarySI).String()
		}
		return resource.NewQuantity(n, resource.DecimalSI).String()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %s. ", name)
	fmt.Fprintf(&text, "Threshold quantity: %s, available: %s. ", quantity(t.least(level.All)), quantity(level.Free))
	for _, c := range f.containers {
		if spec := containerNamed(f.pod, c.name); spec != nil && (name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage) {
			asked := spec.Resources.Requests[name]
			if n := c.amount(name); n > asked.Value() {
				fmt.Fprintf(&text, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.name, quantity(n), asked.String(), name)
			}
		}
	}
	return verdict{Reason: evicted, Message: text.String(), Hasty: !t.Soft, Disrupts: true}
}

// pressureCondition is a condition of the node in Kubernetes' words.
func pressureCondition(t corev1.NodeConditionType, holds bool) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse}
	if holds {
		c.Status = corev1.ConditionTrue
	}
	switch {
	case t == corev1.NodeMemoryPressure && holds:
		c.Reason, c.Message = "KubeletHasInsufficientMemory", "the node has insufficient memory available"
	case t == corev1.NodeMemoryPressure:
		c.Reason, c.Message = "KubeletHasSufficientMemory", "the node has sufficient memory available"
	case t == corev1.NodeDiskPressure && holds:
		c.Reason, c.Message = "KubeletHasDiskPressure", "the node has disk pressure"
	case t == corev1.NodeDiskPressure:
		c.Reason, c.Message = "KubeletHasNoDiskPressure", "the node has no disk pressure"
	case holds:
		c.Reason, c.Message = "KubeletHasInsufficientPID", "the node has insufficient PID available"
	default:
		c.Reason, c.Message = "KubeletHasSufficientPID", "the node has sufficient PID available"
	}
	return c
}
