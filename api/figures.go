package api

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// NodeFigureRecords is the resource of what nodes' pods use.
func NodeFigureRecords() schema.GroupResource { return gr(Group, "nodefigures") }

// FiguresPeriod is how often a node's figures are taken, and written at the most.
const FiguresPeriod = 15 * time.Second

// MaxFigures bounds the bytes of NodeFigures in the store.
const MaxFigures = 512 << 10

// NodeFigures says what pods of a node use: those that an autoscaler asks about, and
// no others. The server that holds the node's session writes it, on the node's lease,
// so it goes when the node is lost; without such pods there is none. Its name is the
// node's.
type NodeFigures struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Time              metav1.MicroTime `json:"time"`     // when the agent measured, by the node's clock
	Received          metav1.MicroTime `json:"received"` // when the server heard of it, by its own
	Pods              []PodFigures     `json:"pods"`     // sorted by uid
}

// PodFigures says what the running containers of a pod use.
type PodFigures struct {
	UID        types.UID          `json:"uid"`
	Millis     int64              `json:"millis"`     // over which the CPU time was counted, up to Time
	Containers []ContainerFigures `json:"containers"` // sorted by name
}

// ContainerFigures says what a container uses.
type ContainerFigures struct {
	Name   string `json:"name"`
	CPU    int64  `json:"cpu"`    // billionths of a CPU
	Memory int64  `json:"memory"` // bytes of its working set; negative: the kernel does not say
}

// Window is how long the CPU time was counted.
func (p *PodFigures) Window() time.Duration { return time.Duration(p.Millis) * time.Millisecond }

// Size estimates the bytes of a pod's figures in the store.
func (p *PodFigures) Size() int {
	n := 48 + len(p.UID)
	for _, c := range p.Containers {
		n += 64 + len(c.Name)
	}
	return n
}

func (f *NodeFigures) DeepCopyObject() runtime.Object {
	out := *f
	f.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Pods = slices.Clone(f.Pods)
	for i, p := range f.Pods {
		out.Pods[i].Containers = slices.Clone(p.Containers)
	}
	return &out
}
