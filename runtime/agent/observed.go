package agent

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
)

// observed is everything that plan and report may look at. Both only read it.
type observed struct {
	pod     *corev1.Pod   // nil: nobody knows what the sandbox was for
	wanted  bool          // the pod is assigned to this node
	sandbox *SandboxState // nil: nothing of the pod is there
	record  *record
	hostIPs []string
	named   bool // an EndpointSlice names the pod: others may be sending to it
}

// record is what the agent remembers of a pod beside what the Runtime reports.
// Losing it restarts nothing: it only loses the count of waits.
type record struct {
	last      corev1.PodStatus     // the newest status: the server's at first, then ours
	images    map[string]present   // by container
	pulls     map[string]backoff   // by container: failed pulls
	crashes   map[string]crash     // by container
	troubles  map[string]trouble   // by container: why it cannot start now
	health    map[string]health    // by container: of the attempt that runs
	stops     map[string]time.Time // by engine id: when the stop of a container began
	hooked    map[string]bool      // by engine id: its preStop hook is over
	replace   map[string]int       // by container: attempt that was stopped for a new image
	announced map[string]int       // by container: attempt whose back-off has its event
	sandbox   trouble              // why the sandbox cannot be made, or undone, now
	clean     bool                 // nothing of the pod is left on the node
	drain     time.Time            // until when a pod that is to be stopped waits for others; zero: not begun
	dropped   bool                 // this node sends nothing new to it
	drained   bool                 // no other node does
	torn      bool                 // containers are stopping or stopped because the pod ends
	doom      *verdict             // why this agent ends the pod; nil: it does not
}

func newRecord(status corev1.PodStatus) *record {
	return &record{
		last: status, images: map[string]present{}, pulls: map[string]backoff{}, crashes: map[string]crash{},
		troubles: map[string]trouble{}, replace: map[string]int{}, announced: map[string]int{}, health: map[string]health{}, stops: map[string]time.Time{}, hooked: map[string]bool{},
	}
}

// present is an image that was found for a container, and what it was asked as.
type present struct {
	asked string
	image Image
}

// trouble is why something could not be done, and the wait until the next try.
type trouble struct {
	reason, message string
	backoff         backoff
	forObject       bool // a ConfigMap or Secret may solve it
}

func (t trouble) is() bool { return t.reason != "" }

// attempts lists the attempts of one container, oldest first.
func (o observed) attempts(name string) []ContainerState {
	if o.sandbox == nil {
		return nil
	}
	var out []ContainerState
	for _, c := range o.sandbox.Containers {
		if c.Name == name {
			out = append(out, c)
		}
	}
	return out
}

// current is the newest attempt of a container. One that the engine does not
// know any more, though a status says that it was started, counts as dead.
func (o observed) current(name string) (ContainerState, bool) {
	list := o.attempts(name)
	if len(list) > 0 {
		return list[len(list)-1], true
	}
	s := lastStatus(&o.record.last, name)
	if s == nil {
		return ContainerState{}, false
	}
	lost := ContainerState{Name: name, Attempt: int(s.RestartCount), Made: -1, Phase: Exited, Image: s.Image, ImageID: s.ImageID}
	switch {
	case s.State.Terminated != nil:
		return fromTerminated(lost, s.State.Terminated), true
	case s.State.Running != nil:
		lost.StartedAt = s.State.Running.StartedAt.Time
		lost.ExitCode, lost.Reason = 137, "ContainerStatusUnknown"
		lost.Message = "The container could not be located on the node"
		return lost, true
	case s.LastTerminationState.Terminated != nil:
		return fromTerminated(lost, s.LastTerminationState.Terminated), true
	}
	return ContainerState{}, false
}

// previous is the attempt before the newest, if it is still known.
func (o observed) previous(name string) (ContainerState, bool) {
	list := o.attempts(name)
	if len(list) > 1 {
		return list[len(list)-2], true
	}
	if len(list) == 1 && list[0].Attempt > 0 {
		s := lastStatus(&o.record.last, name)
		if s != nil && s.State.Terminated != nil && int(s.RestartCount) == list[0].Attempt-1 {
			return fromTerminated(ContainerState{Name: name, Attempt: int(s.RestartCount), Phase: Exited}, s.State.Terminated), true
		}
		if s != nil && s.LastTerminationState.Terminated != nil {
			return fromTerminated(ContainerState{Name: name, Attempt: list[0].Attempt - 1, Phase: Exited}, s.LastTerminationState.Terminated), true
		}
	}
	return ContainerState{}, false
}

// live lists the containers that have not ended; unsure says that the engine
// cannot tell about one of them.
func (o observed) live() (out []ContainerState, unsure bool) {
	if o.sandbox == nil {
		return nil, false
	}
	for _, c := range o.sandbox.Containers {
		switch c.Phase {
		case Running:
			out = append(out, c)
		case Unknown:
			unsure = true
		}
	}
	return out, unsure
}

// deadline is when activeDeadlineSeconds ends the pod.
func (o observed) deadline() (time.Time, bool) {
	s := o.pod.Spec.ActiveDeadlineSeconds
	if s == nil || o.record.last.StartTime == nil {
		return time.Time{}, false
	}
	return o.record.last.StartTime.Add(api.Seconds(*s)), true
}

func terminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

func lastStatus(s *corev1.PodStatus, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

func fromTerminated(c ContainerState, t *corev1.ContainerStateTerminated) ContainerState {
	c.ID = strings.TrimPrefix(t.ContainerID, engine)
	c.ExitCode, c.Signal, c.Reason, c.Message = t.ExitCode, t.Signal, t.Reason, t.Message
	c.StartedAt, c.FinishedAt = t.StartedAt.Time, t.FinishedAt.Time
	return c
}
