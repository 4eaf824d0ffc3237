package podset_test

import (
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type option func(*corev1.Pod)

func pod(name string, options ...option) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), ResourceVersion: "5", Generation: 1,
		CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	for _, o := range options {
		o(p)
	}
	return p
}

func on(node string) option { return func(p *corev1.Pod) { p.Spec.NodeName = node } }
func phase(ph corev1.PodPhase) option {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}
func running(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", corev1.PodRunning }
func ready(since time.Duration) option {
	return func(p *corev1.Pod) {
		running(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-since))}}
	}
}
func cost(c string) option {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: c} }
}
func restarts(n int32) option {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}
func age(d time.Duration) option {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(now.Add(-d)) }
}
func grace(n int64) option {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &n }
}
func finalizer(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} }
func deleting(p *corev1.Pod)  { p.DeletionTimestamp = &metav1.Time{Time: now} }

// TestDeletionOrder has pairs of which the first is deleted first, one per rule.
func TestDeletionOrder(t *testing.T) {
	pairs := map[string][2]*corev1.Pod{
		"unassigned":          {pod("z"), pod("a", on("n1"))},
		"pending":             {pod("z", on("n1"), phase(corev1.PodPending)), pod("a", on("n1"), phase(corev1.PodRunning))},
		"unknown":             {pod("z", on("n1"), phase(corev1.PodUnknown)), pod("a", on("n1"), phase(corev1.PodRunning))},
		"not ready":           {pod("z", running), pod("a", ready(time.Hour))},
		"lower cost":          {pod("z", ready(time.Hour), cost("-5")), pod("a", ready(time.Minute), cost("3"))},
		"cost that is none":   {pod("z", ready(time.Hour), cost("-1")), pod("a", ready(time.Minute), cost("much"))},
		"crowded node":        {pod("z", ready(time.Hour), on("crowded")), pod("a", ready(time.Minute), on("n1"))},
		"ready later":         {pod("z", ready(time.Minute)), pod("a", ready(time.Hour))},
		"restarts":            {pod("z", ready(time.Hour), restarts(3)), pod("a", ready(time.Hour), restarts(1))},
		"newer":               {pod("z", ready(time.Hour), age(time.Minute)), pod("a", ready(time.Hour), age(time.Hour))},
		"same magnitude: uid": {pod("a", ready(60*time.Minute)), pod("b", ready(61*time.Minute))},
	}
	perNode := map[string]int{"crowded": 3, "n1": 1}
	for name, pair := range pairs {
		for _, in := range [][]*corev1.Pod{{pair[0], pair[1]}, {pair[1], pair[0]}} {
			if got := podset.DeletionOrder(in, perNode, now); got[0] != pair[0] {
				t.Errorf("%s: %s is deleted first, want %s", name, got[0].Name, pair[0].Name)
			}
		}
	}
}

func TestRemove(t *testing.T) {
	cases := []struct {
		name  string
		pod   *corev1.Pod
		want  string // verb, or "" for nothing
		grace int64
	}{
		{"unbound goes at once", pod("p"), "delete", 0},
		{"ended goes at once", pod("p", on("n1"), phase(corev1.PodFailed)), "delete", 0},
		{"bound waits for its agent", pod("p", running, grace(30)), "update", 30},
		{"bound without grace waits for a second: none would say that it has stopped", pod("p", running, grace(0)), "update", 1},
		{"a negative grace is one second", pod("p", running, grace(-4)), "update", 1},
		{"a grace beyond all time is not over", pod("p", running, grace(9223372037)), "update", 9223372037},
		{"unbound with a finalizer is marked", pod("p", finalizer), "update", 0},
		{"marked already", pod("p", running, deleting), "", 0},
		{"marked, held by a finalizer", pod("p", finalizer, deleting), "", 0},
		{"marked, ended", pod("p", on("n1"), phase(corev1.PodSucceeded), deleting), "delete", 0},
	}
	for _, c := range cases {
		before := c.pod.DeepCopy()
		ops := podset.Remove(c.pod, now)
		got := ""
		if len(ops) == 1 {
			got = string(ops[0].Verb)
		}
		if got != c.want || len(ops) > 1 {
			t.Errorf("%s: %v, want %q", c.name, ops, c.want)
			continue
		}
		if before.String() != c.pod.String() {
			t.Errorf("%s: the pod of the cache was changed", c.name)
		}
		if got != string(store.Update) {
			continue
		}
		p := ops[0].Object.(*corev1.Pod)
		if *p.DeletionGracePeriodSeconds != c.grace || !p.DeletionTimestamp.Time.Equal(now.Add(api.Seconds(c.grace))) || p.Generation != 2 {
			t.Errorf("%s: grace %d until %v, generation %d", c.name, *p.DeletionGracePeriodSeconds, p.DeletionTimestamp, p.Generation)
		}
	}
}

func TestAvailable(t *testing.T) {
	cases := []struct {
		name string
		pod  *corev1.Pod
		min  int32
		ok   bool
		wait time.Duration
	}{
		{"not ready", pod("p", running), 0, false, 0},
		{"ready", pod("p", ready(0)), 0, true, 0},
		{"ready, not long enough", pod("p", ready(10*time.Second)), 30, false, 20 * time.Second},
		{"ready just long enough", pod("p", ready(30*time.Second)), 30, true, 0},
	}
	for _, c := range cases {
		if ok, wait := podset.Available(c.pod, c.min, now); ok != c.ok || wait != c.wait {
			t.Errorf("%s: %v, %v, want %v, %v", c.name, ok, wait, c.ok, c.wait)
		}
	}
}

func TestQOS(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	c := func(request, limit corev1.ResourceList) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: request, Limits: limit}}
	}
	full := c(list("1", "1Gi"), list("1000m", "1024Mi"))
	cases := map[string]struct {
		spec corev1.PodSpec
		want corev1.PodQOSClass
	}{
		"nothing asked":       {corev1.PodSpec{Containers: []corev1.Container{{}}}, corev1.PodQOSBestEffort},
		"everything equal":    {corev1.PodSpec{Containers: []corev1.Container{full, full}}, corev1.PodQOSGuaranteed},
		"one asks nothing":    {corev1.PodSpec{Containers: []corev1.Container{full, {}}}, corev1.PodQOSBurstable},
		"init asks nothing":   {corev1.PodSpec{InitContainers: []corev1.Container{{}}, Containers: []corev1.Container{full}}, corev1.PodQOSBurstable},
		"only a request":      {corev1.PodSpec{Containers: []corev1.Container{c(list("1", ""), nil)}}, corev1.PodQOSBurstable},
		"only cpu":            {corev1.PodSpec{Containers: []corev1.Container{c(list("1", ""), list("1", ""))}}, corev1.PodQOSBurstable},
		"only other resource": {corev1.PodSpec{Containers: []corev1.Container{c(corev1.ResourceList{"example.com/x": resource.MustParse("1")}, nil)}}, corev1.PodQOSBestEffort},
		"of the pod": {corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("1", "1Gi")},
			Containers: []corev1.Container{{}}}, corev1.PodQOSGuaranteed},
	}
	for name, tc := range cases {
		if got := podset.QOS(&tc.spec); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestNamesAreValidAndDiffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.StringMatching(`[a-z0-9]([-.a-z0-9]{0,80}[a-z0-9])?`).Filter(func(s string) bool { return len(validation.IsDNS1123Subdomain(s)) == 0 }).Draw(t, "base")
		a, b := rapid.Uint64Range(0, 1<<23).Draw(t, "a"), rapid.Uint64Range(0, 1<<23).Draw(t, "b")
		name := podset.Name(base, a)
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || len(name) > 63 {
			t.Fatalf("%s: %v", name, problems)
		}
		if a != b && name == podset.Name(base, b) {
			t.Fatalf("%d and %d give the same name", a, b)
		}
	})
}

func TestNewPodIsAsTheAPIServerHasIt(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u"}}
	template := &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
	p := podset.New(rs, template)
	one, two := podset.Copy(p, "web-1-aaaaa", now), podset.Copy(p, "web-1-bbbbb", now)
	if one.UID == two.UID || one.UID == "" || one.Generation != 1 || one.CreationTimestamp.IsZero() {
		t.Errorf("identities %q and %q", one.UID, two.UID)
	}
	one.Labels["app"] = "changed"
	if two.Labels["app"] != "web" || template.Labels["app"] != "web" {
		t.Error("copies share their labels")
	}
	ref := two.OwnerReferences[0]
	if !*ref.Controller || !*ref.BlockOwnerDeletion || ref.Kind != "ReplicaSet" || ref.APIVersion != "apps/v1" || ref.UID != "u" {
		t.Errorf("owner %+v", ref)
	}
	if two.Namespace != "shop" || two.GenerateName != "web-1-" || two.Status.Phase != corev1.PodPending || two.Status.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("%+v", two)
	}
}

// Kubernetes defaults a pod beyond its template: it requests what it limits, and gets
// the variables of Services. Without that an update by a client looks like a change of
// the spec.
func TestNewPodHasThePodsDefaults(t *testing.T) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "u"}}
	half := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	template := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: half}}}}}
	p := podset.New(rs, template)
	if got := p.Spec.Containers[0].Resources.Requests; !equality.Semantic.DeepEqual(got, half) || p.Status.QOSClass != corev1.PodQOSGuaranteed {
		t.Errorf("requests %v, class %s", got, p.Status.QOSClass)
	}
	if s := p.Spec.EnableServiceLinks; s == nil || !*s {
		t.Errorf("enableServiceLinks: %v", s)
	}
	if template.Spec.Containers[0].Resources.Requests != nil {
		t.Error("the template was changed")
	}
	again := p.DeepCopy()
	if api.Scheme().Default(again); !equality.Semantic.DeepEqual(p, again) {
		t.Errorf("the API server would change it once more:\n%+v\n%+v", p, again)
	}
}

func TestTransactionsStayInBounds(t *testing.T) {
	small := &corev1.PodTemplateSpec{}
	if n := podset.PerTxn(small); n < 50 || n > store.BulkObjects {
		t.Errorf("%d small pods at once", n)
	}
	large := &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"x": strings.Repeat("x", 200<<10)}}}
	if n := podset.PerTxn(large); n < 1 || n*(200<<10) > store.BulkBytes {
		t.Errorf("%d pods of 200 KiB at once", n)
	}
}
