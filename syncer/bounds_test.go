package syncer

import (
	"strings"
	"testing"

	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	range1 = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: bounds}\nspec:\n  limits:\n  - {type: Container, max: {cpu: 500m}, default: {cpu: 200m}, defaultRequest: {cpu: 100m}}\n"
	quota1 = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: team}\nspec: {hard: {pods: 3}}\n"
	frugal = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 3\n  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n    spec:\n" +
		"      containers:\n      - name: web\n        image: web:1\n        resources: {requests: {cpu: 100m}, limits: {cpu: 400m}}\n"
)

// What a commit declares is held against the LimitRanges and quotas that there will
// be, whichever of them it changes.
func TestBoundsAtThePush(t *testing.T) {
	greedy := edit(frugal, "limits: {cpu: 400m}", "limits: {cpu: 2}")
	const forbidden = "a.yaml:13:9: spec.template.spec.containers[0].resources: LimitRange bounds of namespace default forbids every pod of it: maximum cpu usage per Container is 500m, but limit is 2"
	for name, tt := range map[string]struct {
		before, after string
		problems      string
		warnings      string
	}{
		"within":                          {"", range1 + "---\n" + frugal, "", ""},
		"a limit above the maximum":       {"", edit(frugal, "limits: {cpu: 400m}", "limits: {cpu: 2}") + "---\n" + range1, forbidden, ""},
		"in a LimitRange that was before": {range1, greedy + "---\n" + range1, forbidden, ""},
		"a new LimitRange for old ones":   {greedy, greedy + "---\n" + range1, forbidden, ""},
		"one that goes":                   {range1, greedy, "", ""},
		"one that is raised":              {range1 + "---\n" + frugal, greedy + "---\n" + edit(range1, "500m", "4"), "", ""},
		"below the minimum": {"", frugal + "---\n" + edit(range1, "max: {cpu: 500m}, default: {cpu: 200m}, defaultRequest: {cpu: 100m}", "min: {cpu: 150m}"),
			"a.yaml:13:9: spec.template.spec.containers[0].resources: LimitRange bounds of namespace default forbids every pod of it: minimum cpu usage per Container is 150m, but request is 100m", ""},
		"all containers together": {"", frugal + "---\n" + edit(range1, "type: Container, max: {cpu: 500m}, default: {cpu: 200m}, defaultRequest: {cpu: 100m}", "type: Pod, max: {cpu: 300m}"),
			"a.yaml:9:5: spec.template.spec: LimitRange bounds of namespace default forbids every pod of it: maximum cpu usage per Pod is 300m, but limit is 400m", ""},
		"a default that does not go with a request": {"", edit(frugal, ", limits: {cpu: 400m}", "", "cpu: 100m", "cpu: 300m") + "---\n" + range1,
			"a.yaml:13:9: spec.template.spec.containers[0].resources: the LimitRanges of namespace default forbid every pod of it: container web: the cpu request 300m must be less than or equal to the limit 200m, which a LimitRange may have given", ""},
		"a DaemonSet": {"", edit(greedy, "kind: Deployment", "kind: DaemonSet", "  replicas: 3\n", "") + "---\n" + range1, edit(forbidden, ":13:", ":12:"), ""},

		"a quota that fits":             {"", frugal + "---\n" + quota1, "", ""},
		"one workload alone":            {"", edit(frugal, "replicas: 3", "replicas: 5") + "---\n" + quota1, "", "a.yaml:5:3: spec.replicas: Deployment default/web: ResourceQuota team allows pods=3 in namespace default, and with 5 pods it asks for pods=5: what does not fit is not made"},
		"one that was before":           {quota1, edit(frugal, "replicas: 3", "replicas: 5") + "---\n" + quota1, "", "a.yaml:5:3: spec.replicas: Deployment default/web: ResourceQuota team allows pods=3 in namespace default, and with 5 pods it asks for pods=5: what does not fit is not made"},
		"a quota that is lowered":       {frugal + "---\n" + quota1, frugal + "---\n" + edit(quota1, "pods: 3", "requests.cpu: 250m, pods: 9"), "", "a.yaml:5:3: spec.replicas: Deployment default/web: ResourceQuota team allows requests.cpu=250m in namespace default, and with 3 pods it asks for requests.cpu=300m: what does not fit is not made"},
		"nothing of it changes":         {edit(frugal, "replicas: 3", "replicas: 5") + "---\n" + quota1, edit(frugal, "replicas: 3", "replicas: 5") + "---\n" + quota1 + "---\n" + configMap("other", "1"), "", ""},
		"all together":                  {"", frugal + "---\n" + edit(frugal, "name: web}\nspec", "name: more}\nspec") + "---\n" + quota1, "", "a.yaml:29:1: ResourceQuota team allows pods=3 in namespace default, and what this commit declares there asks for pods=6 together: what does not fit is not made"},
		"objects are counted":           {"", configMap("a", "1") + "---\n" + configMap("b", "1") + "---\n" + edit(quota1, "pods: 3", "count/configmaps: 1"), "", "a.yaml:11:1: ResourceQuota team allows count/configmaps=1 in namespace default, and what this commit declares there asks for count/configmaps=2 together: what does not fit is not made"},
		"what the quota counts is left": {"", frugal + "---\n" + edit(quota1, "pods: 3", "limits.memory: 1Gi"), "", "a.yaml:9:5: spec.template.spec: Deployment default/web: its pods are not made: ResourceQuota team of namespace default wants each to specify limits.memory for: web"},
		"a LimitRange gives it":         {"", frugal + "---\n" + edit(quota1, "pods: 3", "limits.memory: 1Gi") + "---\n" + edit(range1, "default: {cpu: 200m}", "default: {memory: 100Mi}"), "", ""},
		"out of its scope":              {"", edit(frugal, "replicas: 3", "replicas: 5") + "---\n" + edit(quota1, "{hard: {pods: 3}}", "{hard: {pods: 3}, scopes: [BestEffort]}"), "", ""},
		"another namespace":             {"", edit(frugal, "replicas: 3", "replicas: 5") + "---\n" + edit(quota1, "{name: team}", "{name: team, namespace: kube-system}"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := ""
			if tt.before != "" {
				before = "c1"
				w.push(w.repo.add("c1", "", map[string]string{"a.yaml": tt.before}))
			}
			v, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.add("c2", before, map[string]string{"a.yaml": tt.after})})
			if err != nil {
				t.Fatal(err)
			}
			text := func(list []string) string { return strings.Join(list, "\n") }
			var warnings []string
			for _, p := range v.Warnings {
				warnings = append(warnings, p.String())
			}
			if got := text(v.Lines()); got != tt.problems {
				t.Errorf("problems\n%s\nwant\n%s", got, tt.problems)
			}
			if got := text(warnings); got != tt.warnings {
				t.Errorf("warnings\n%s\nwant\n%s", got, tt.warnings)
			}
		})
	}
}

// liveLimits makes a LimitRange by hand.
func liveLimits(w *world) {
	live := &corev1.LimitRange{ObjectMeta: metaOf("default", "by-hand", nil)}
	live.Spec.Limits = []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("300m")}}}
	w.write(store.Create, live)
}

// A LimitRange that nobody declares warns, since it can go without a commit.
func TestLiveLimitsWarn(t *testing.T) {
	w := newWorld(t)
	w.push(w.repo.add("c1", "", map[string]string{"z.yaml": configMap("z", "1")}))
	liveLimits(w)
	w.settle()
	v, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.add("c2", "c1", map[string]string{"z.yaml": configMap("z", "1"), "a.yaml": frugal})})
	want := "a.yaml:13:9: spec.template.spec.containers[0].resources: LimitRange by-hand, which this commit does not declare, of namespace default forbids every pod of it: maximum cpu usage per Container is 300m, but limit is 400m"
	if err != nil || !v.OK() || len(v.Warnings) != 1 || v.Warnings[0].String() != want {
		t.Errorf("%v %v %v", v.Lines(), v.Warnings, err)
	}
}
