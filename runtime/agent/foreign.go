package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
)

// What the node's condition holds of foreign containers: how many of them, and how
// many bytes of each name.
const maxNamed, maxName = 5, 80

// foreign tells of each container that belongs to no pod, once, when it is first seen;
// the node's condition says which there are now. Agent.mu is held.
func (a *Agent) foreign(found []ForeignContainer) {
	now := make(map[string]bool, len(found))
	a.strange = nil
	for _, c := range found {
		a.strange = append(a.strange, c.Image)
		key := c.ID + " " + c.CreatedAt.String()
		now[key] = true
		if a.alien[key] {
			continue
		}
		a.log.Warn("a container belongs to no pod", "namespace", c.Namespace, "container", c.ID, "image", c.Image)
		a.out.event(a.foreignEvent(c))
		notify(a.send)
	}
	a.alien = now
	next := corev1.NodeCondition{Type: api.ForeignContainers, Status: corev1.ConditionFalse, Reason: "NoForeignContainers", Message: "every container belongs to a pod"}
	if len(found) > 0 {
		next.Status, next.Reason, next.Message = corev1.ConditionTrue, "ForeignContainers", foreignText(found)
	}
	for _, c := range a.node.Status.Conditions {
		if c.Type == next.Type && c.Status == next.Status && c.Message == next.Message {
			return
		}
	}
	a.condition(next)
}

func (a *Agent) foreignEvent(c ForeignContainer) *corev1.Event {
	return a.nodeEvent(c.ID+" "+c.CreatedAt.UTC().String(), corev1.EventTypeWarning, "ForeignContainer", foreignText([]ForeignContainer{c}))
}

// nodeEvent is an event about the node. The server takes one of a key once.
func (a *Agent) nodeEvent(key, type_, reason, message string) *corev1.Event {
	e := a.eventAbout(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: a.name}, key)
	e.Type, e.Reason, e.Message = type_, reason, message
	return e
}

// eventAbout is a warning about what is no pod; its name is the same for the same key,
// also from an agent that was started again, so that the server takes it once.
func (a *Agent) eventAbout(about corev1.ObjectReference, key string) *corev1.Event {
	sum := sha256.Sum256([]byte(key))
	at := seconds(a.cfg.Now())
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: about.Name[:min(len(about.Name), 220)] + "." + hex.EncodeToString(sum[:8])},
		InvolvedObject: about, Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source:              corev1.EventSource{Component: "headway-agent", Host: a.name},
		ReportingController: "headway-agent", ReportingInstance: a.name,
	}
}

// foreignText says which containers there are, as somebody else has called them.
func foreignText(found []ForeignContainer) string {
	names := make([]string, 0, maxNamed)
	for _, c := range found[:min(len(found), maxNamed)] {
		name := clip(c.ID, maxName)
		if c.Image != "" {
			name += " (" + clip(c.Image, maxName) + ")"
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if more := len(found) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	text += " in containerd's namespace " + found[0].Namespace
	if len(found) == 1 {
		return "container " + text + " belongs to no pod: Headway did not make it, and leaves it alone"
	}
	return "containers " + text + " belong to no pod: Headway did not make them, and leaves them alone"
}

// clip makes what outsiders have chosen fit for a sentence.
func clip(s string, most int) string {
	if s = api.Printable(s); len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
