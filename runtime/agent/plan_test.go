package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func planPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Generation: 1},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "a", Image: "a:1"}, {Name: "b", Image: "b:1"}}},
	}
}

func (d decision) String() string {
	out := string(d.step.verb)
	if d.step.verb == wait {
		out = "wait"
	}
	if d.step.container != "" {
		out += " " + d.step.container
	}
	if d.step.verb == start {
		out += fmt.Sprintf(" #%d", d.step.attempt)
	}
	for _, v := range d.step.victims {
		d.step.ids = append(d.step.ids, v.id)
	}
	if len(d.step.ids) > 0 {
		out += " " + strings.Join(d.step.ids, ",")
	}
	if d.step.verb == stop {
		out += " " + d.step.grace.String()
	}
	if !d.wake.IsZero() {
		out += " until +" + d.wake.Sub(at).String()
	}
	return out
}

func TestPlan(t *testing.T) {
	up := func(cs ...ContainerState) *SandboxState {
		return &SandboxState{UID: "u", Ready: true, IPs: []string{"10.1.0.2"}, Containers: cs}
	}
	run := func(name string, attempt int) ContainerState {
		return ContainerState{ID: fmt.Sprintf("%s%d", name, attempt), Name: name, Attempt: attempt, Phase: Running, Image: name + ":1", StartedAt: at.Add(-time.Hour)}
	}
	dead := func(name string, attempt int, code int32, ran, ago time.Duration) ContainerState {
		c := run(name, attempt)
		c.Phase, c.ExitCode, c.FinishedAt = Exited, code, at.Add(-ago)
		c.StartedAt = c.FinishedAt.Add(-ran)
		return c
	}
	both := map[string]present{"a": {asked: "a:1"}, "b": {asked: "b:1"}}
	deleted := func(o *observed) {
		now, grace := metav1.NewTime(at), int64(7)
		o.pod.DeletionTimestamp, o.pod.DeletionGracePeriodSeconds = &now, &grace
	}
	policy := func(p corev1.RestartPolicy) func(*observed) {
		return func(o *observed) { o.pod.Spec.RestartPolicy = p }
	}
	for _, c := range []struct {
		name    string
		sandbox *SandboxState
		images  map[string]present
		change  func(*observed)
		want    string
	}{
		{"new", nil, nil, nil, "make sandbox"},
		{"sandbox", up(), nil, nil, "fetch image a"},
		{"image", up(), both, nil, "start a #0"},
		{"first runs", up(run("a", 0)), both, nil, "start b #0"},
		{"all run", up(run("a", 0), run("b", 0)), both, nil, "wait"},
		{"sandbox lost, all run", &SandboxState{UID: "u", Containers: []ContainerState{run("a", 0), run("b", 0)}}, both, nil, "wait"},
		{"sandbox lost, one dead", &SandboxState{UID: "u", Containers: []ContainerState{run("a", 0), dead("b", 0, 1, 0, time.Hour)}}, both, nil, "make sandbox"},
		{"first crash", up(dead("a", 0, 1, time.Second, 0), run("b", 0)), both, nil, "start a #1"},
		{"second crash, record lost", up(dead("a", 1, 1, time.Second, 4*time.Second), run("b", 0)), both, nil, "wait until +6.65625s"},
		{"crash after a long run", up(dead("a", 5, 1, time.Hour, 0), run("b", 0)), both, nil, "start a #6"},
		{"crashes a hundred times", up(dead("a", 100, 1, time.Second, 0), run("b", 0)), both, nil, "wait until +5m11.25s"},
		{"never, failed", up(dead("a", 0, 1, 0, 0), run("b", 0)), both, policy(corev1.RestartPolicyNever), "wait"},
		{"never, all over", up(dead("a", 0, 1, 0, 0), dead("b", 0, 0, 0, 0)), both, policy(corev1.RestartPolicyNever), "stop sandbox"},
		{"on failure, succeeded", up(dead("a", 0, 0, 0, 0), run("b", 0)), both, policy(corev1.RestartPolicyOnFailure), "wait"},
		{"unknown is left alone", up(ContainerState{ID: "a0", Name: "a", Phase: Unknown, Image: "a:1"}, run("b", 0)), both, nil, "wait until +5s"},
		{"made and not started", up(ContainerState{ID: "a0", Name: "a", Phase: Created, Image: "a:1"}), both, nil, "remove a0"},
		{"new image", up(run("a", 0), run("b", 0)), both, func(o *observed) { o.pod.Spec.Containers[0].Image = "a:2" }, "stop a0 30s"},
		{"old attempts", up(dead("a", 0, 1, 0, 0), dead("a", 1, 1, 0, 0), run("a", 2), run("b", 0)), both, nil, "remove a0"},
		{"deleted", up(run("a", 0), dead("b", 0, 0, 0, 0)), both, deleted, "stop a0 7s"},
		{"deleted, unsure", up(ContainerState{ID: "a0", Name: "a", Phase: Unknown}), both, deleted, "wait until +5s"},
		{"deleted, dead", up(dead("a", 0, 0, 0, 0)), both, deleted, "remove sandbox"},
		{"deleted, nothing known of it", nil, nil, deleted, "remove sandbox"},
		{"deleted, clean", nil, nil, func(o *observed) { deleted(o); o.record.clean = true }, "wait"},
		{"unassigned", up(run("a", 0)), both, func(o *observed) { o.wanted = false }, "stop a0 30s"},
		{"unassigned, clean", nil, nil, func(o *observed) { o.wanted = false; o.record.clean = true }, "forget"},
		{"unknown pod", up(run("x", 0)), nil, func(o *observed) { o.pod, o.wanted = nil, false }, "stop x0 30s"},
		{"failed elsewhere", up(run("a", 0), run("b", 0)), both, func(o *observed) { o.record.last.Phase = corev1.PodFailed }, "stop a0,b0 30s"},
	} {
		o := observed{pod: planPod(), wanted: true, sandbox: c.sandbox, record: newRecord(corev1.PodStatus{})}
		if c.images != nil {
			o.record.images = c.images
		}
		if c.change != nil {
			c.change(&o)
		}
		if got := plan(o, at).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSpecHashIsStable(t *testing.T) {
	// Written down: a change would restart every container of an upgraded node if
	// the image alone did not decide.
	if got := specHash(&corev1.Container{Name: "main", Image: "nginx:1"}); got != "v1:ce7c5a1a5348e85f418602f1" {
		t.Errorf("the hash became %s", got)
	}
	c := &corev1.Container{Name: "main", Image: "nginx:1"}
	for hash, image := range map[string]string{"v0:other": "nginx:1", "": "nginx:1", specHash(c): "nginx:1", "v9:future": ""} {
		if outdated(ContainerState{SpecHash: hash, Image: image}, c) {
			t.Errorf("hash %q of image %q restarts the container", hash, image)
		}
	}
	if !outdated(ContainerState{SpecHash: "v1:x", Image: "nginx:0"}, c) {
		t.Error("another image is not noticed")
	}
}

// observedGen draws any state that a machine, a server and a past can leave.
func observedGen(t *rapid.T) observed {
	o := observed{pod: planPod(), wanted: rapid.Bool().Draw(t, "wanted"), record: newRecord(corev1.PodStatus{}), hostIPs: []string{"10.0.0.9"}}
	o.pod.Spec.RestartPolicy = rapid.SampledFrom([]corev1.RestartPolicy{"Always", "OnFailure", "Never"}).Draw(t, "policy")
	always := corev1.ContainerRestartPolicyAlways
	switch rapid.IntRange(0, 2).Draw(t, "init") {
	case 1:
		o.pod.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "i:1"}}
	case 2:
		o.pod.Spec.InitContainers = []corev1.Container{{Name: "s", Image: "s:1", RestartPolicy: &always}, {Name: "i", Image: "i:1"}}
	}
	if rapid.Bool().Draw(t, "deleted") {
		now := metav1.NewTime(at)
		o.pod.DeletionTimestamp = &now
	}
	if rapid.Bool().Draw(t, "ended") {
		o.record.last.Phase = rapid.SampledFrom([]corev1.PodPhase{"Succeeded", "Failed", "Running", "Pending"}).Draw(t, "phase")
	}
	if rapid.Bool().Draw(t, "limited") {
		limit, began := int64(60), metav1.NewTime(at.Add(-time.Duration(rapid.IntRange(0, 120).Draw(t, "age"))*time.Second))
		o.pod.Spec.ActiveDeadlineSeconds, o.record.last.StartTime = &limit, &began
	}
	if rapid.IntRange(0, 4).Draw(t, "doomed") == 0 {
		o.record.doom = &verdict{Reason: evicted, Message: "why", Hasty: rapid.Bool().Draw(t, "hasty"), Disrupts: rapid.Bool().Draw(t, "disrupts")}
	}
	o.record.clean = rapid.Bool().Draw(t, "clean")
	if rapid.Bool().Draw(t, "sandbox") {
		o.sandbox = &SandboxState{UID: "u", Ready: rapid.Bool().Draw(t, "ready"), IPs: []string{"10.1.0.2"}, Made: rapid.IntRange(0, 1).Draw(t, "made")}
		for _, name := range []string{"a", "b", "i", "s"} {
			attempts := rapid.IntRange(0, 3).Draw(t, "attempts "+name)
			for attempt := range attempts {
				c := ContainerState{ID: fmt.Sprintf("%s%d", name, attempt), Name: name, Attempt: attempt, Image: name + ":1", StartedAt: at.Add(-time.Minute)}
				c.Phase = Exited
				if attempt == attempts-1 {
					c.Phase = rapid.SampledFrom([]Phase{Running, Exited, Exited, Created, Unknown}).Draw(t, "phase "+c.ID)
				}
				c.Made, c.Signalled = rapid.IntRange(0, o.sandbox.Made).Draw(t, "made "+c.ID), rapid.Bool().Draw(t, "signalled "+c.ID)
				c.ExitCode = int32(rapid.IntRange(0, 1).Draw(t, "code "+c.ID))
				c.FinishedAt = at.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "ago "+c.ID)) * time.Second)
				o.sandbox.Containers = append(o.sandbox.Containers, c)
			}
		}
		sortContainers(o.sandbox.Containers)
	}
	for _, c := range []*corev1.Container{containerNamed(o.pod, "a"), containerNamed(o.pod, "s")} {
		if c == nil {
			continue
		}
		if rapid.Bool().Draw(t, "hooks "+c.Name) {
			sleep := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
			c.Lifecycle = &corev1.Lifecycle{PostStart: sleep, PreStop: sleep}
		}
		if rapid.Bool().Draw(t, "probes "+c.Name) {
			c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = &corev1.Probe{}, &corev1.Probe{}, &corev1.Probe{}
		}
		if cur, ok := o.current(c.Name); ok && rapid.Bool().Draw(t, "health "+c.Name) {
			h := o.health(c, cur)
			h.greeted, h.started, h.ready = h.greeted || rapid.Bool().Draw(t, "greeted"), h.started || rapid.Bool().Draw(t, "started"), h.ready || rapid.Bool().Draw(t, "is ready")
			h.sick = rapid.SampledFrom([]string{"", "", hookFailed, "Liveness"}).Draw(t, "sick")
			o.record.health[c.Name] = h
		}
		if cur, ok := o.current(c.Name); ok && rapid.Bool().Draw(t, "stopping "+c.Name) {
			o.record.stops[cur.ID] = at.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "since")) * time.Second)
			if rapid.Bool().Draw(t, "hooked "+c.Name) {
				o.record.hooked[cur.ID] = true
			}
		}
	}
	for _, name := range []string{"a", "b", "i", "s"} {
		if rapid.Bool().Draw(t, "image "+name) {
			o.record.images[name] = present{asked: name + ":1"}
		}
		if rapid.IntRange(0, 3).Draw(t, "trouble "+name) == 0 {
			o.record.troubles[name] = trouble{reason: errImagePull, message: "no", backoff: backoff{Delay: 10 * time.Second, Since: at.Add(-5 * time.Second)}}
		}
	}
	return o
}

// Whatever is there: nothing is started while it runs, or may; nothing that runs
// is stopped unless the pod ends; and a plan neither changes what it looks at nor
// depends on anything else.
func TestR8_PlanIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := observedGen(t)
		before, last := fmt.Sprintf("%+v", o.sandbox), *o.record.last.DeepCopy()
		d := plan(o, at)
		if again := plan(o, at); again.String() != d.String() {
			t.Fatalf("%s, then %s", d, again)
		}
		if fmt.Sprintf("%+v", o.sandbox) != before || !equality.Semantic.DeepEqual(last, o.record.last) {
			t.Fatal("the plan changed what it looked at")
		}
		ends := !o.wanted || o.pod.DeletionTimestamp != nil || terminal(draft(o, at).Phase)
		live, unsure := o.live()
		if told := report(o, at).Phase; terminal(told) && !terminal(o.record.last.Phase) && (len(live) > 0 || unsure) {
			t.Fatalf("told as %s while it may run: %+v", told, o.sandbox)
		}
		switch d.step.verb {
		case start:
			cur, ok := o.current(d.step.container)
			if ends || ok && cur.Phase != Exited || ok && d.step.attempt != cur.Attempt+1 || !o.sandbox.Ready {
				t.Fatalf("%s with %+v", d, o.sandbox)
			}
			// Init containers run before the others, and not beside them.
			regular := !o.isInit(containerNamed(o.pod, d.step.container))
			for i := range o.pod.Spec.InitContainers {
				c := &o.pod.Spec.InitContainers[i]
				done, ok := o.current(c.Name)
				if regular && !o.begun() && (!ok || !o.here(done) || !sidecar(c) && (done.Phase != Exited || done.ExitCode != 0)) {
					t.Fatalf("%s before %s: %+v", d, c.Name, o.sandbox)
				}
				if c.Name == d.step.container && !sidecar(c) && o.begun() {
					t.Fatalf("%s beside the regular containers: %+v", d, o.sandbox)
				}
			}
		case stop:
			for _, v := range d.step.victims {
				id := v.id
				if !slices.ContainsFunc(live, func(c ContainerState) bool { return c.ID == id }) {
					t.Fatalf("%s: %s does not run", d, id)
				}
			}
			over := true // the regular containers have ended for good; the others go too
			for i := range o.pod.Spec.Containers {
				cur, ok := o.current(o.pod.Spec.Containers[i].Name)
				over = over && ok && cur.Phase == Exited && !restarts(o.pod, &o.pod.Spec.Containers[i], cur.ExitCode)
			}
			v := d.step.victims[0]
			sick := len(d.step.victims) == 1 && o.record.health[v.name].id == v.id && o.record.health[v.name].sick != ""
			if !ends && !over && !sick {
				t.Fatalf("%s of a pod that goes on: %+v", d, o.sandbox)
			}
			for _, v := range d.step.victims {
				cur, _ := o.current(v.name)
				if v.hook && (cur.Signalled || v.grace <= 0 || o.record.hooked[v.id]) {
					t.Fatalf("%s: a hook is called that was called, or cannot be", d)
				}
				if began, ok := o.record.stops[v.id]; ok && v.grace > max(defaultGrace-at.Sub(began), 0) {
					t.Fatalf("%s: more grace than is left", d)
				}
				for _, other := range d.step.victims {
					if isSidecar(o.pod, v.name) && !isSidecar(o.pod, other.name) && v.rank <= other.rank {
						t.Fatalf("%s: a sidecar is stopped before %s", d, other.name)
					}
				}
			}
		case greet:
			cur, _ := o.current(d.step.container)
			if ends || cur.Phase != Running || cur.ID != d.step.ids[0] || o.record.health[cur.Name].greeted && o.record.health[cur.Name].id == cur.ID {
				t.Fatalf("%s with %+v", d, o.sandbox)
			}
		case remove:
			for _, c := range live {
				if slices.Contains(d.step.ids, c.ID) {
					t.Fatalf("%s: it runs", d)
				}
			}
		case removeSandbox:
			if o.wanted && o.pod.DeletionTimestamp == nil || len(live) > 0 || unsure {
				t.Fatalf("%s with %+v", d, o.sandbox)
			}
		case stopSandbox:
			if !ends || len(live) > 0 || unsure {
				t.Fatalf("%s with %+v", d, o.sandbox)
			}
		}
		if d.step.verb == wait && !d.wake.IsZero() && !d.wake.After(at) {
			t.Fatalf("%s would spin", d)
		}
	})
}

func TestReportIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := observedGen(t)
		o.wanted = true
		one := report(o, at)
		raw, err := one.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var read corev1.PodStatus
		if err := read.Unmarshal(raw); err != nil {
			t.Fatal(err)
		}
		if !equality.Semantic.DeepEqual(one, read) {
			t.Fatal("the wire changes a status")
		}
		o.record.last = one
		two := report(o, at.Add(time.Second))
		o.record.last = two
		three := report(o, at.Add(time.Second))
		if !equality.Semantic.DeepEqual(two, three) {
			t.Fatalf("a status changes while nothing does:\n%+v\n%+v", two, three)
		}
		if terminal(one.Phase) && three.Phase != one.Phase {
			t.Fatalf("phase %s became %s", one.Phase, three.Phase)
		}
		for _, c := range append(one.InitContainerStatuses, one.ContainerStatuses...) {
			states := 0
			for _, set := range []bool{c.State.Waiting != nil, c.State.Running != nil, c.State.Terminated != nil} {
				if set {
					states++
				}
			}
			if states != 1 || c.Started == nil {
				t.Fatalf("container with %d states: %+v", states, c)
			}
		}
	})
}

func isSidecar(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return sidecar(&pod.Spec.InitContainers[i])
		}
	}
	return false
}
