package admission

import (
	"fmt"
	"math"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The priorities of the two classes that there are without anybody making them.
const (
	priorityClusterCritical = int32(2_000_000_000)
	priorityNodeCritical    = priorityClusterCritical + 1000
)

// The names of those two classes.
const (
	classClusterCritical = "system-cluster-critical"
	classNodeCritical    = "system-node-critical"
)

// SystemPriorityClass says whether a class is there without anybody making it.
func SystemPriorityClass(name string) bool {
	return name == classClusterCritical || name == classNodeCritical
}

// prioritize writes into a new pod the priority of its class: the one that it
// names, or else the one that is globalDefault, or else zero. The pod itself may
// say nothing else.
func prioritize(pod *corev1.Pod, f Facts) error {
	class, err := classOf(pod.Spec.PriorityClassName, f)
	if err != nil {
		return forbidden(pod, err)
	}
	if own := pod.Spec.Priority; own != nil && *own != class.Value {
		return forbidden(pod, fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; priority admission controller computed %d from the given PriorityClass name", *own, class.Value))
	}
	policy := corev1.PreemptLowerPriority
	if class.PreemptionPolicy != nil {
		policy = *class.PreemptionPolicy
	}
	if own := pod.Spec.PreemptionPolicy; own != nil && *own != policy {
		return forbidden(pod, fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; priority admission controller computed %s from the given PriorityClass name", *own, policy))
	}
	value := class.Value
	pod.Spec.PriorityClassName, pod.Spec.Priority, pod.Spec.PreemptionPolicy = class.Name, &value, &policy
	return nil
}

func forbidden(pod *corev1.Pod, err error) error {
	return apierrors.NewForbidden(api.Pods(), pod.Name, err)
}

// classOf finds a class by its name, or the default for "". Of several defaults the
// lowest counts, as in Kubernetes.
func classOf(name string, f Facts) (*schedulingv1.PriorityClass, error) {
	none := &schedulingv1.PriorityClass{}
	lowest := int64(math.MaxInt64)
	for _, obj := range f.PriorityClasses {
		c, ok := obj.(*schedulingv1.PriorityClass)
		switch {
		case !ok:
		case name != "" && c.Name == name:
			return c, nil
		case name == "" && c.GlobalDefault && int64(c.Value) < lowest:
			none, lowest = c, int64(c.Value)
		}
	}
	system := &schedulingv1.PriorityClass{}
	system.Name = name
	switch name {
	case "":
		return none, nil
	case classClusterCritical:
		system.Value = priorityClusterCritical
		return system, nil
	case classNodeCritical:
		system.Value = priorityNodeCritical
		return system, nil
	}
	return nil, fmt.Errorf("no PriorityClass with name %s was found", name)
}

// oneDefault refuses a second class that is the default.
func oneDefault(class *schedulingv1.PriorityClass, f Facts) error {
	if !class.GlobalDefault {
		return nil
	}
	for _, obj := range f.PriorityClasses {
		if c, ok := obj.(*schedulingv1.PriorityClass); ok && c.GlobalDefault && c.Name != class.Name {
			return apierrors.NewForbidden(api.PriorityClasses(), class.Name, fmt.Errorf("PriorityClass %s is already marked as default. Only one default can exist", c.Name))
		}
	}
	return nil
}
