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

const (
	maxRemembered = 1024 // events that a repeat is counted in
	maxMessage    = 1024 // bytes, as in Kubernetes
)

// recorder makes events of pods; a repeat raises the count of the first.
type recorder struct {
	host   string
	known  map[eventKey]*corev1.Event
	order  []eventKey
	serial int64
}

type eventKey struct {
	uid                      types.UID
	container, type_, reason string
	message                  string
}

func newRecorder(host string) recorder {
	return recorder{host: host, known: map[eventKey]*corev1.Event{}}
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
	a.out.event(a.events.record(pod, container, type_, reason, message, now))
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
