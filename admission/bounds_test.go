package admission_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// amounts reads "cpu=1 memory=1Gi"; "" is nil.
func amounts(text string) corev1.ResourceList {
	var out corev1.ResourceList
	for part := range strings.FieldsSeq(text) {
		name, n, _ := strings.Cut(part, "=")
		if out == nil {
			out = corev1.ResourceList{}
		}
		out[corev1.ResourceName(name)] = resource.MustParse(n)
	}
	return out
}

func sized(requests, limits string) *corev1.Pod {
	p := pod()
	p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: amounts(requests), Limits: amounts(limits)}
	return p
}

func limits(items ...corev1.LimitRangeItem) []*corev1.LimitRange {
	return []*corev1.LimitRange{{ObjectMeta: meta("team", "limits"), Spec: corev1.LimitRangeSpec{Limits: items}}}
}

// TestLimitRange holds Limit against https://kubernetes.io/docs/concepts/policy/limit-range/.
func TestLimitRange(t *testing.T) {
	container, whole := corev1.LimitTypeContainer, corev1.LimitTypePod
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		item corev1.LimitRangeItem
		want string // refused; "" passes
	}{
		"above the minimum":              {sized("cpu=1", ""), corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1")}, ""},
		"below the minimum":              {sized("cpu=500m", ""), corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1")}, "minimum cpu usage per Container is 1, but request is 500m"},
		"no request, a minimum":          {sized("", ""), corev1.LimitRangeItem{Type: container, Min: amounts("cpu=1")}, "minimum cpu usage per Container is 1.  No request is specified"},
		"below the maximum":              {sized("cpu=1", "cpu=2"), corev1.LimitRangeItem{Type: container, Max: amounts("cpu=2")}, ""},
		"above the maximum":              {sized("cpu=1", "cpu=3"), corev1.LimitRangeItem{Type: container, Max: amounts("cpu=2")}, "maximum cpu usage per Container is 2, but limit is 3"},
		"no limit, a maximum":            {sized("cpu=1", ""), corev1.LimitRangeItem{Type: container, Max: amounts("cpu=2")}, "maximum cpu usage per Container is 2.  No limit is specified"},
		"the ratio":                      {sized("cpu=1", "cpu=2"), corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=2")}, ""},
		"above the ratio":                {sized("cpu=1", "cpu=3"), corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=2")}, "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"},
		"no request, a ratio":            {sized("", "cpu=3"), corev1.LimitRangeItem{Type: container, MaxLimitRequestRatio: amounts("cpu=2")}, "but no request is specified or request is 0"},
		"the pod's maximum":              {sized("cpu=1", "cpu=3"), corev1.LimitRangeItem{Type: whole, Max: amounts("cpu=2")}, "maximum cpu usage per Pod is 2, but limit is 3"},
		"a default below a demand":       {sized("cpu=2", ""), corev1.LimitRangeItem{Type: container, Default: amounts("cpu=1")}, "the cpu request 2 must be less than or equal to the limit 1"},
		"claims' bounds are not a pod's": {sized("cpu=1", ""), corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: amounts("storage=1")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := admission.Limit(c.pod, limits(c.item))
			if c.want == "" && err != nil || c.want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("team", "data")}
	claim.Spec.Resources.Requests = amounts("storage=5Gi")
	item := corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Min: amounts("storage=1Gi"), Max: amounts("storage=2Gi")}
	if _, err := admission.Limit(claim, limits(item)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi") {
		t.Errorf("claim: %v", err)
	}
}

func TestLimitRangeGivesDefaults(t *testing.T) {
	in := sized("memory=1Gi", "")
	in.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	kept := in.DeepCopy()
	ranges := limits(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: amounts("cpu=1"), DefaultRequest: amounts("cpu=100m memory=64Mi")})
	got, err := admission.Limit(in, ranges)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, kept) {
		t.Error("the pod that was given is changed")
	}
	spec := got.(*corev1.Pod).Spec
	want := []corev1.ResourceRequirements{
		{Requests: amounts("cpu=100m memory=1Gi"), Limits: amounts("cpu=1")},
		{Requests: amounts("cpu=100m memory=64Mi"), Limits: amounts("cpu=1")},
	}
	for i, r := range []corev1.ResourceRequirements{spec.Containers[0].Resources, spec.InitContainers[0].Resources} {
		for name, n := range want[i].Requests {
			if have := r.Requests[name]; have.Cmp(n) != 0 {
				t.Errorf("container %d requests %s %s", i, name, have.String())
			}
		}
		if have := r.Limits[corev1.ResourceCPU]; have.Cmp(resource.MustParse("1")) != 0 {
			t.Errorf("container %d has the limit %s", i, have.String())
		}
	}
	if told := got.GetAnnotations()["kubernetes.io/limit-ranger"]; told != "LimitRanger plugin set: cpu request for container c; cpu limit for container c; cpu, memory request for init container init; cpu limit for init container init" {
		t.Errorf("annotation %q", told)
	}
	if again, err := admission.Limit(got, ranges); err != nil || again != got {
		t.Errorf("given twice: %v", err)
	}
}

func quota(hard, used string, scopes ...corev1.ResourceQuotaScope) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: meta("team", "q"), Spec: corev1.ResourceQuotaSpec{Hard: amounts(hard), Scopes: scopes}}
	q.Status = corev1.ResourceQuotaStatus{Hard: amounts(hard), Used: amounts(used)}
	return q
}

// TestQuota holds Charge against https://kubernetes.io/docs/concepts/policy/resource-quotas/.
func TestQuota(t *testing.T) {
	deadline, deadlined := int64(9), sized("cpu=1", "")
	deadlined.Spec.ActiveDeadlineSeconds = &deadline
	classy := sized("cpu=1", "")
	classy.Spec.PriorityClassName = "gold"
	byClass := quota("pods=1", "pods=1")
	byClass.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn, Values: []string{"gold"}}}}
	ended := sized("cpu=1", "")
	ended.Status.Phase = corev1.PodSucceeded
	nodePort := &corev1.Service{ObjectMeta: meta("team", "s"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 1}, {Port: 2}}}}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("team", "data")}
	claim.Spec.Resources.Requests = amounts("storage=5Gi")
	small := claim.DeepCopy()
	small.Spec.Resources.Requests = amounts("storage=2Gi")
	const full = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
	for name, c := range map[string]struct {
		obj, old api.Object
		quota    *corev1.ResourceQuota
		used     string // after; "" when the quota is not changed
		want     string // refused
	}{
		"room":                           {obj: pod(), quota: quota("pods=2", "pods=1"), used: "pods=2"},
		"full":                           {obj: pod(), quota: quota("pods=1", "pods=1"), want: full},
		"over already, another resource": {obj: &corev1.ConfigMap{ObjectMeta: meta("team", "c")}, quota: quota("pods=1 configmaps=1", "pods=5"), used: "pods=5 configmaps=1"},
		"not bounded":                    {obj: &corev1.Secret{ObjectMeta: meta("team", "c")}, quota: quota("pods=1", "pods=1")},
		"objects of any kind":            {obj: &corev1.Secret{ObjectMeta: meta("team", "c")}, quota: quota("count/secrets=0", ""), want: "limited: count/secrets=0"},
		"requests":                       {obj: sized("cpu=1 memory=1Gi", ""), quota: quota("requests.cpu=2 memory=2Gi", "requests.cpu=1"), used: "requests.cpu=2 memory=1Gi"},
		"requests, too much":             {obj: sized("cpu=1500m", ""), quota: quota("requests.cpu=2", "requests.cpu=1"), want: "exceeded quota: q, requested: requests.cpu=1500m, used: requests.cpu=1, limited: requests.cpu=2"},
		"limits":                         {obj: sized("", "cpu=3"), quota: quota("limits.cpu=2", ""), want: "requested: limits.cpu=3, used: limits.cpu=0, limited: limits.cpu=2"},
		"extended resources":             {obj: sized("x.org/a=2", ""), quota: quota("requests.x.org/a=1", ""), want: "requests.x.org/a=2"},
		"no request where one is needed": {obj: sized("cpu=1", ""), quota: quota("limits.cpu=2 requests.memory=1Gi", ""), want: "failed quota: q: must specify limits.cpu for: c; requests.memory for: c"},
		"a pod that has ended":           {obj: ended, quota: quota("pods=1", "pods=1")},
		"its object still counts":        {obj: ended, quota: quota("count/pods=1", "count/pods=1"), want: "count/pods=1"},
		"terminating":                    {obj: deadlined, quota: quota("pods=1", "pods=1", corev1.ResourceQuotaScopeTerminating), want: full},
		"terminating, not in scope":      {obj: pod(), quota: quota("pods=1", "pods=1", corev1.ResourceQuotaScopeTerminating)},
		"not terminating":                {obj: pod(), quota: quota("pods=1", "pods=1", corev1.ResourceQuotaScopeNotTerminating), want: full},
		"best effort":                    {obj: pod(), quota: quota("pods=1", "pods=1", corev1.ResourceQuotaScopeBestEffort), want: full},
		"best effort, not in scope":      {obj: sized("cpu=1", ""), quota: quota("pods=1", "pods=1", corev1.ResourceQuotaScopeBestEffort)},
		"a priority class":               {obj: classy, quota: byClass, want: full},
		"another priority class":         {obj: pod(), quota: byClass},
		"scopes are of pods":             {obj: &corev1.Secret{ObjectMeta: meta("team", "c")}, quota: quota("secrets=0", "", corev1.ResourceQuotaScopeBestEffort)},
		"node ports":                     {obj: nodePort, quota: quota("services.nodeports=1", ""), want: "requested: services.nodeports=2"},
		"a service that opens them":      {obj: nodePort, old: &corev1.Service{ObjectMeta: meta("team", "s")}, quota: quota("services=1 services.nodeports=2", "services=1"), used: "services=1 services.nodeports=2"},
		"a claim that grows":             {obj: claim, old: small, quota: quota("requests.storage=6Gi persistentvolumeclaims=1", "requests.storage=4Gi persistentvolumeclaims=1"), want: "requested: requests.storage=3Gi, used: requests.storage=4Gi"},
		"a claim that shrinks":           {obj: small, old: claim, quota: quota("requests.storage=1Gi", "requests.storage=5Gi")},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := admission.Charge([]api.Charged{{Object: c.obj, Old: c.old}}, []*corev1.ResourceQuota{c.quota}, noon)
			if c.want != "" {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || len(changed) > 1 || (len(changed) == 1) != (c.used != "") {
				t.Fatalf("%v, %v", changed, err)
			}
			for name, n := range amounts(c.used) {
				if have := changed[0].Status.Used[name]; have.Cmp(n) != 0 {
					t.Errorf("%s: used %s, want %s", name, have.String(), n.String())
				}
			}
		})
	}
}

func TestPodsThatShouldHaveStoppedDoNotCount(t *testing.T) {
	p := pod()
	at, grace := metav1.NewTime(noon), int64(30)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	q := quota("pods=1", "")
	for after, want := range map[time.Duration]bool{0: true, 30 * time.Second: true, 31 * time.Second: false} {
		if _, got := admission.Used(p, q, noon.Add(after))[corev1.ResourcePods]; got != want {
			t.Errorf("%v after it was to end it counts: %v", after, got)
		}
	}
}

// TestBoundsHasWhatUsedCounts: what an object uses of a bound, a look for that bound
// finds.
func TestBoundsHasWhatUsedCounts(t *testing.T) {
	class := "fast"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta("team", "data")}
	claim.Spec.StorageClassName, claim.Spec.Resources.Requests = &class, amounts("storage=1Gi")
	objects := []api.Object{
		sized("cpu=1 memory=1Gi x.org/a=1 hugepages-2Mi=2Mi", "cpu=1 memory=1Gi ephemeral-storage=1"), claim, &corev1.Secret{ObjectMeta: meta("team", "s")}, &corev1.ConfigMap{ObjectMeta: meta("team", "s")},
		&corev1.Service{ObjectMeta: meta("team", "s"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 1}}}},
		&corev1.ResourceQuota{ObjectMeta: meta("team", "q")}, &corev1.ReplicationController{ObjectMeta: meta("team", "r")},
	}
	for _, obj := range objects {
		k, _ := api.KindOf(obj)
		for name := range admission.Used(obj, &corev1.ResourceQuota{}, noon) {
			if !admission.Bounds(corev1.ResourceList{name: resource.MustParse("1")}, k.GroupResource()) {
				t.Errorf("%s of a %s is not found", name, k.Kind)
			}
		}
	}
}

// TestChargeNeverExceeds charges any writes and checks the sum.
func TestChargeNeverExceeds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := quota("pods=5 requests.cpu=4", "")
		for range rapid.IntRange(1, 20).Draw(rt, "writes") {
			var writes []api.Charged
			for range rapid.IntRange(1, 3).Draw(rt, "at once") {
				p := pod()
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(rapid.IntRange(1, 2000).Draw(rt, "cpu")), resource.DecimalSI)}
				writes = append(writes, api.Charged{Object: p})
			}
			changed, err := admission.Charge(writes, []*corev1.ResourceQuota{q}, noon)
			if err == nil {
				q = changed[0]
			}
			for name, n := range q.Status.Used {
				if hard := q.Status.Hard[name]; n.Cmp(hard) > 0 {
					rt.Fatalf("%s: used %s of %s", name, n.String(), hard.String())
				}
			}
		}
	})
}

// A pod that is told to stop counts until its grace is over, also one beyond all time.
func TestOverdue(t *testing.T) {
	told := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	for grace, want := range map[int64]time.Duration{30: 30 * time.Second, 9223372037: api.LongestTime} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &told, DeletionGracePeriodSeconds: &grace}}
		if at, ok := admission.Overdue(pod); !ok || !at.Equal(told.Add(want)) {
			t.Errorf("a grace of %d seconds is over at %s, %v", grace, at, ok)
		}
	}
}
