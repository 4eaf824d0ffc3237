package syncer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/admission"
	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checkBounds holds what the commit declares against the LimitRanges and the
// ResourceQuotas that there will be: what changes, and all of a namespace whose bounds
// change. A template that a declared LimitRange forbids can make no pod, ever. A quota
// may be raised, and what is used of it may be given back.
func checkBounds(c *scene, classes []api.Object, now time.Time, f *findings) {
	ranges, quotas := c.after(api.LimitRanges()), c.after(api.ResourceQuotas())
	if len(ranges)+len(quotas) == 0 {
		return
	}
	changed := map[store.Key]bool{}
	limited, rationed := map[string]bool{}, map[string]bool{} // namespaces whose bounds change
	for _, m := range c.changed {
		key := keyOf(m)
		changed[key] = true
		switch key.GroupResource {
		case api.LimitRanges():
			limited[key.Namespace] = true
		case api.ResourceQuotas():
			rationed[key.Namespace] = true
		}
	}
	demands := map[string][]demand{}
	steps := map[store.Key]Step{}
	for _, step := range c.steps {
		steps[step.Key] = step // the last of an object says how it will be
	}
	for _, m := range c.desired.list {
		key := keyOf(m)
		if len(ranges[key.Namespace])+len(quotas[key.Namespace]) == 0 {
			continue
		}
		d := c.demandOf(m, steps[key], classes)
		d.changed = changed[key]
		if d.pod != nil {
			judged := d.changed || limited[key.Namespace]
			d.limit(c, ranges[key.Namespace], judged, f)
		}
		demands[key.Namespace] = append(demands[key.Namespace], d)
	}
	for _, namespace := range slices.Sorted(maps.Keys(quotas)) {
		for _, obj := range quotas[namespace] {
			ration(c, obj.(*corev1.ResourceQuota), demands[namespace], rationed[namespace], now, f)
		}
	}
}

// after lists the objects of a resource that there will be when the steps are done, by
// their namespaces and in the order of their names.
func (c *scene) after(gr schema.GroupResource) map[string][]api.Object {
	all := map[store.Key]api.Object{}
	for _, obj := range c.live.List(gr, "") {
		all[store.KeyOf(obj)] = obj
	}
	for _, step := range c.steps {
		if step.Key.GroupResource != gr {
			continue
		}
		delete(all, step.Key)
		if obj := remains(step); obj != nil {
			all[step.Key] = obj
		}
	}
	out := map[string][]api.Object{}
	for _, key := range slices.SortedFunc(maps.Keys(all), compareKeys) {
		out[key.Namespace] = append(out[key.Namespace], all[key])
	}
	return out
}

// remains is what a step leaves; nil: nothing.
func remains(step Step) api.Object {
	switch {
	case step.Verb == Delete:
		return nil
	case step.Op.Object != nil && step.Op.Verb != store.Delete:
		return step.Op.Object
	case step.Manifest != nil: // it waits, and is made from its manifest
		return step.Manifest.Object
	}
	return step.Live
}

// demand is a declared object and what it brings into its namespace.
type demand struct {
	manifest *api.Manifest
	object   api.Object  // as it will be
	pod      *corev1.Pod // that it makes; nil: none
	at       string      // of the pod's fields in the manifest
	count    int         // pods at once
	open     bool        // how many at once, and when, is not in the manifest
	changed  bool
}

func (c *scene) demandOf(m *api.Manifest, step Step, classes []api.Object) demand {
	d := demand{manifest: m, object: m.Object, count: 1}
	if live := c.live.Get(keyOf(m)); live != nil {
		d.object = live // replicas that an autoscaler has set, for instance
	}
	if obj := remains(step); obj != nil {
		d.object = obj
	}
	t, at := template(d.object)
	if t == nil {
		return d
	}
	d.at = at
	switch o := d.object.(type) {
	case *corev1.Pod:
		d.pod = o
		return d
	case *batchv1.Job:
		d.count = atOnce(&o.Spec)
	case *batchv1.CronJob:
		d.count, d.open = atOnce(&o.Spec.JobTemplate.Spec), true
	case *appsv1.DaemonSet: // one on each node that suits
		d.open = true
	default:
		if scale, err := api.ScaleOf(o); err == nil {
			d.count = int(scale.Replicas)
		}
	}
	pod := podset.New(d.object, t)
	admitted, err := admission.Admit(admission.Request{Verb: admission.Create, Object: pod},
		admission.Facts{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: pod.Namespace}}, PriorityClasses: classes, Accounts: anyAccount(pod)})
	if p, ok := admitted.(*corev1.Pod); err == nil && ok {
		pod = p
	}
	d.pod = pod
	return d
}

// atOnce is how many pods a Job has at most.
func atOnce(j *batchv1.JobSpec) int {
	n := count(j.Parallelism)
	if j.Completions != nil {
		n = min(n, int(*j.Completions))
	}
	if j.Suspend != nil && *j.Suspend {
		n = 0
	}
	return n
}

// limit gives the pod what the LimitRanges give it, and files what they forbid of it:
// an error by a LimitRange of the commit, a warning by another, which can change
// without a commit.
func (d *demand) limit(c *scene, objects []api.Object, judged bool, f *findings) {
	if len(objects) == 0 {
		return
	}
	declared := map[string]bool{}
	var ranges []*corev1.LimitRange
	for _, obj := range objects {
		ranges = append(ranges, obj.(*corev1.LimitRange))
		declared[obj.GetName()] = c.desired.manifest(store.KeyOf(obj)) != nil
	}
	var found []admission.Excess
	if d.pod, found = admission.Excesses(d.pod, ranges); !judged {
		return
	}
	for _, e := range found {
		rule, by := ruleLimits, "LimitRange "+e.Range
		switch {
		case e.Range == "":
			by = "the LimitRanges"
			if !slices.ContainsFunc(ranges, func(r *corev1.LimitRange) bool { return declared[r.Name] }) {
				rule = ruleLimitsLive
			}
		case !declared[e.Range]:
			rule = ruleLimitsLive
			by += ", which this commit does not declare,"
		}
		verb := "forbids"
		if e.Range == "" {
			verb = "forbid"
		}
		f.add(rule, problem(d.manifest, d.at+e.Field, fmt.Sprintf("%s of namespace %s %s every pod of it: %s", by, d.manifest.Object.GetNamespace(), verb, e.Why)))
	}
}

// ration files what does not fit into a quota: a workload that alone asks for more, or
// whose pods do not say what the quota counts; else all that the commit declares in
// the namespace together.
func ration(c *scene, q *corev1.ResourceQuota, demands []demand, all bool, now time.Time, f *findings) {
	hard := q.Spec.Hard
	total := corev1.ResourceList{}
	said, newest := false, (*api.Manifest)(nil)
	for _, d := range demands {
		used := d.use(q, now)
		if !d.open {
			total = plus(total, used)
		}
		if !d.changed && !all {
			continue
		}
		if newest == nil && len(used) > 0 {
			newest = d.manifest
		}
		name := titleOf(keyOf(d.manifest))
		if d.pod != nil && d.count > 0 {
			if missing := admission.Unspecified(d.pod, q); missing != "" {
				f.add(ruleQuota, problem(d.manifest, d.at+"spec", fmt.Sprintf("%s: its pods are not made: ResourceQuota %s of namespace %s wants each to specify %s", name, q.Name, q.Namespace, missing)))
				said = true
				continue
			}
		}
		if over := beyondHard(used, hard); len(over) > 0 {
			f.add(ruleQuota, problem(d.manifest, d.countAt(), fmt.Sprintf("%s: ResourceQuota %s allows %s in namespace %s, and %s asks for %s: what does not fit is not made",
				name, q.Name, figures(hard, over), q.Namespace, d.called(), figures(used, over))))
			said = true
		}
	}
	if said || newest == nil {
		return
	}
	if over := beyondHard(total, hard); len(over) > 0 {
		at := newest
		if m := c.desired.manifest(store.KeyOf(q)); m != nil {
			at = m
		}
		f.add(ruleQuota, problem(at, "", fmt.Sprintf("ResourceQuota %s allows %s in namespace %s, and what this commit declares there asks for %s together: what does not fit is not made",
			q.Name, figures(hard, over), q.Namespace, figures(total, over))))
	}
}

// use is what the object and its pods use of what a quota bounds.
func (d *demand) use(q *corev1.ResourceQuota, now time.Time) corev1.ResourceList {
	out := corev1.ResourceList{}
	if _, isPod := d.object.(*corev1.Pod); !isPod {
		out = plus(out, admission.Used(d.object, q, now))
	}
	if d.pod != nil {
		all := corev1.ResourceList{}
		for name, n := range admission.Used(d.pod, q, now) {
			n = n.DeepCopy()
			n.Mul(int64(d.count))
			all[name] = n
		}
		out = plus(out, all)
	}
	maps.DeleteFunc(out, func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, bounded := q.Spec.Hard[name]
		return !bounded
	})
	return out
}

// countAt is the field that says how many pods there are to be.
func (d *demand) countAt() string {
	switch d.object.(type) {
	case *batchv1.Job:
		return "spec.parallelism"
	case *batchv1.CronJob:
		return "spec.jobTemplate.spec.parallelism"
	case *appsv1.Deployment, *appsv1.ReplicaSet, *appsv1.StatefulSet, *corev1.ReplicationController:
		return "spec.replicas"
	}
	return ""
}

// called says what of the object uses the quota.
func (d *demand) called() string {
	if _, isPod := d.object.(*corev1.Pod); isPod || d.pod == nil {
		return "it"
	}
	if _, isSet := d.object.(*appsv1.DaemonSet); isSet {
		return "each of its pods"
	}
	return "with " + plural(d.count, "pod") + " it"
}

func plus(a, b corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(a)
	for name, n := range b {
		total := out[name].DeepCopy()
		total.Add(n)
		out[name] = total
	}
	return out
}

// beyondHard names what is more than the hard bound.
func beyondHard(used, hard corev1.ResourceList) (over []corev1.ResourceName) {
	for _, name := range slices.Sorted(maps.Keys(used)) {
		n, most := used[name], hard[name]
		if _, bounded := hard[name]; bounded && n.Cmp(most) > 0 {
			over = append(over, name)
		}
	}
	return over
}

func figures(list corev1.ResourceList, names []corev1.ResourceName) string {
	var out []string
	for _, name := range names {
		n := list[name]
		out = append(out, string(name)+"="+n.String())
	}
	return strings.Join(out, ", ")
}
