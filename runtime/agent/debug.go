package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// debugNamed finds an ephemeral container of the pod.
func debugNamed(pod *corev1.Pod, name string) *corev1.EphemeralContainer {
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return &pod.Spec.EphemeralContainers[i]
		}
	}
	return nil
}

// asContainer is an ephemeral container as one of the usual ones: its fields are theirs.
func asContainer(c *corev1.EphemeralContainer) *corev1.Container {
	return (*corev1.Container)(&c.EphemeralContainerCommon)
}

// debug is the step that the ephemeral containers need. They start as soon as the pod has
// its surroundings, also while others wait, and never a second time.
func debug(o observed, now time.Time, d *decision) step {
	if o.sandbox == nil || !o.sandbox.Ready {
		return step{} // it is made for the others
	}
	for i := range o.pod.Spec.EphemeralContainers {
		c := asContainer(&o.pod.Spec.EphemeralContainers[i])
		var s step
		switch cur, exists := o.current(c.Name); {
		case !exists:
			s = prepare(o, c, now, step{verb: start, container: c.Name, why: "it is for debugging"}, d)
		case cur.Phase == Created: // the agent or the engine died between make and start
			d.try(o, now, step{verb: remove, ids: []string{cur.ID}, why: "it was never started"})
			s = d.step
		case cur.Phase == Unknown:
			d.wakeAt(now.Add(unsureAgain))
		}
		if s.verb != wait {
			return s
		}
	}
	return step{}
}

// target is the container, by the engine's id, whose processes an ephemeral container
// sees; "": only its own.
func (o observed) target(name string) (string, error) {
	c := debugNamed(o.pod, name)
	if c == nil || c.TargetContainerName == "" {
		return "", nil
	}
	cur, ok := o.current(c.TargetContainerName)
	if !ok || cur.Phase != Running {
		return "", fmt.Errorf("container %s, whose processes it is to see, does not run", c.TargetContainerName)
	}
	return cur.ID, nil
}
