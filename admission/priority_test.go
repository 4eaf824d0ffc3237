package admission

import (
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func aClass(name string, value int32, isDefault bool, policy corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	c := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault}
	if policy != "" {
		c.PreemptionPolicy = &policy
	}
	return c
}

// Documented in concepts/scheduling-eviction/pod-priority-preemption.
func TestPriority(t *testing.T) {
	high := aClass("high", 1000, false, "")
	never := aClass("never", 500, false, corev1.PreemptNever)
	standard := aClass("standard", 10, true, "")
	lower := aClass("lower", 5, true, "")
	number := func(n int32) *int32 { return &n }
	policy := func(p corev1.PreemptionPolicy) *corev1.PreemptionPolicy { return &p }
	for _, tt := range []struct {
		name    string
		classes []api.Object
		spec    corev1.PodSpec
		want    string // class
		value   int32
		policy  corev1.PreemptionPolicy
		err     string
	}{
		{name: "no class", classes: []api.Object{high}, policy: corev1.PreemptLowerPriority},
		{name: "a class", classes: []api.Object{high, never}, spec: corev1.PodSpec{PriorityClassName: "high"}, want: "high", value: 1000, policy: corev1.PreemptLowerPriority},
		{name: "a class that never preempts", classes: []api.Object{high, never}, spec: corev1.PodSpec{PriorityClassName: "never"}, want: "never", value: 500, policy: corev1.PreemptNever},
		{name: "the default", classes: []api.Object{high, standard}, want: "standard", value: 10, policy: corev1.PreemptLowerPriority},
		{name: "the lowest of two defaults", classes: []api.Object{standard, lower}, want: "lower", value: 5, policy: corev1.PreemptLowerPriority},
		{name: "a class in spite of a default", classes: []api.Object{high, standard}, spec: corev1.PodSpec{PriorityClassName: "high"}, want: "high", value: 1000, policy: corev1.PreemptLowerPriority},
		{name: "system-cluster-critical", spec: corev1.PodSpec{PriorityClassName: "system-cluster-critical"}, want: "system-cluster-critical", value: 2000000000, policy: corev1.PreemptLowerPriority},
		{name: "system-node-critical", spec: corev1.PodSpec{PriorityClassName: "system-node-critical"}, want: "system-node-critical", value: 2000001000, policy: corev1.PreemptLowerPriority},
		{name: "a class that is not there", classes: []api.Object{high}, spec: corev1.PodSpec{PriorityClassName: "hihg"}, err: "no PriorityClass with name hihg was found"},
		{name: "the same number", classes: []api.Object{high}, spec: corev1.PodSpec{PriorityClassName: "high", Priority: number(1000)}, want: "high", value: 1000, policy: corev1.PreemptLowerPriority},
		{name: "a number of its own", classes: []api.Object{high}, spec: corev1.PodSpec{PriorityClassName: "high", Priority: number(2000)}, err: "the integer value of priority (2000) must not be provided in pod spec; priority admission controller computed 1000"},
		{name: "a policy of its own", classes: []api.Object{high}, spec: corev1.PodSpec{PriorityClassName: "high", PreemptionPolicy: policy(corev1.PreemptNever)}, err: "the string value of PreemptionPolicy (Never) must not be provided in pod spec"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: tt.spec}
		before := pod.DeepCopy()
		out, err := Admit(Request{Verb: Create, Object: pod}, Facts{Namespace: &corev1.Namespace{}, PriorityClasses: tt.classes})
		if pod.String() != before.String() {
			t.Errorf("%s: the request was changed", tt.name)
		}
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := out.(*corev1.Pod).Spec
		if got.PriorityClassName != tt.want || got.Priority == nil || *got.Priority != tt.value || got.PreemptionPolicy == nil || *got.PreemptionPolicy != tt.policy {
			t.Errorf("%s: class %q, priority %v, policy %v", tt.name, got.PriorityClassName, got.Priority, got.PreemptionPolicy)
		}
	}
}

func TestOnlyOneDefaultPriorityClass(t *testing.T) {
	facts := Facts{PriorityClasses: []api.Object{aClass("standard", 10, true, "")}}
	for class, refused := range map[*schedulingv1.PriorityClass]bool{
		aClass("other", 20, true, ""): true, aClass("other", 20, false, ""): false, aClass("standard", 10, true, ""): false,
	} {
		_, err := Admit(Request{Verb: Create, Object: class}, facts)
		if got := err != nil && strings.Contains(err.Error(), "PriorityClass standard is already marked as default"); got != refused {
			t.Errorf("%s, default %v: %v", class.Name, class.GlobalDefault, err)
		}
	}
}

// A pod that a controller makes is gated like one that a user makes.
func TestSchedulingGatesAreTold(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Spec: corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: "g"}}}}
	out, err := Admit(Request{Verb: Create, Object: pod}, Facts{Namespace: &corev1.Namespace{}})
	if err != nil {
		t.Fatal(err)
	}
	got := out.(*corev1.Pod).Status.Conditions
	if len(got) != 1 || got[0].Type != corev1.PodScheduled || got[0].Status != corev1.ConditionFalse || got[0].Reason != "SchedulingGated" {
		t.Errorf("conditions %+v", got)
	}
}
