package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// As in Kubernetes: of one pod and reason, so many events at once and one more after
// each time. What is not sent is counted in the next that is.
const (
	eventBurst = 25
	eventEvery = 5 * time.Minute
)

const (
	maxRemembered = 1024 // events that a repeat is counted in
	maxMessage    = 1024 // bytes, as in Kubernetes
)

// recorder makes events of pods; a repeat raises the count of the first.
type recorder struct {
	host   string
	known  map[eventKey]*corev1.Event
	order  []eventKey
	flows  map[flowKey]allowance
	serial int64
}

type flowKey struct {
	uid    types.UID
	reason string
}

// allowance is how many events may be sent at a time.
type allowance struct {
	left  float64
	since time.Time
}

// spend takes one of what is allowed at now.
func (a allowance) spend(now time.Time) (allowance, bool) {
	if a.since.IsZero() {
		a = allowance{left: eventBurst, since: now}
	}
	a.left = min(a.left+max(now.Sub(a.since), 0).Seconds()/eventEvery.Seconds(), eventBurst)
	a.since = now
	if a.left < 1 {
		return a, false
	}
	a.left--
	return a, true
}

// allowed says whether one more event of a pod for this reason is sent.
func (r *recorder) allowed(uid types.UID, reason string, now time.Time) bool {
	key := flowKey{uid, reason}
	if _, known := r.flows[key]; !known && len(r.flows) >= maxRemembered {
		for k, a := range r.flows { // those that are full again say nothing
			if now.Sub(a.since) >= eventBurst*eventEvery {
				delete(r.flows, k)
			}
		}
		if len(r.flows) >= maxRemembered {
			clear(r.flows)
		}
	}
	next, ok := r.flows[key].spend(now)
	r.flows[key] = next
	return ok
}

type eventKey struct {
	uid                      types.UID
	container, type_, reason string
	message                  string
}

func newRecorder(host string) recorder {
	return recorder{host: host, known: map[eventKey]*corev1.Event{}, flows: map[flowKey]allowance{}}
}

func (r *recorder) record(pod *corev1.Pod, container, type_, reason, message string, now time.Time) *corev1.Event {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-3], "") + "..."
	}
	key := eventKey{pod.UID, container, type_, reason, message}
	at := seconds(now)
	if e := r.known[key]; e != nil {
		next := e.DeepCopy()
		next.Count++
		next.LastTimestamp = at
		r.known[key] = next
		return next
	}
	r.serial++
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace,
			Name:      fmt.Sprintf("%s.%x", pod.Name[:min(len(pod.Name), 220)], now.UnixNano()+r.serial),
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Reason: reason, Message: message, Type: type_, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: "headway-agent", Host: r.host},
		ReportingController: "headway-agent", ReportingInstance: r.host,
	}
	if container != "" {
		path := "spec.containers"
		if slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == container }) {
			path = "spec.initContainers"
		} else if debugNamed(pod, container) != nil {
			path = "spec.ephemeralContainers"
		}
		e.InvolvedObject.FieldPath = path + "{" + container + "}"
	}
	if len(r.order) >= maxRemembered {
		delete(r.known, r.order[0])
		r.order = r.order[1:]
	}
	r.known[key] = e
	r.order = append(r.order, key)
	return e
}

// event tells people what happened to a pod; nil is a sandbox that no pod is
// known for.
func (a *Agent) event(pod *corev1.Pod, container, type_, reason, message string, now time.Time) {
	if pod == nil {
		return
	}
	e := a.events.record(pod, container, type_, reason, message, now)
	if !a.events.allowed(pod.UID, reason, now) {
		return
	}
	a.out.event(e)
	notify(a.send)
}

// announce tells once per attempt that a container waits for its restart.
func (a *Agent) announce(e *entry, waiting []string) {
	for _, name := range waiting {
		cur, ok := e.observed(nil).current(name)
		if said, told := e.record.announced[name]; !ok || told && said == cur.Attempt {
			continue
		}
		e.record.announced[name] = cur.Attempt
		a.event(e.pod, name, corev1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, e.pod.Name, e.pod.Namespace, e.pod.UID), a.cfg.Now())
	}
}
