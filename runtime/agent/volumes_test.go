package agent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/runtime/volume"
)

// shelf is Volumes in the memory of the test.
type shelf struct {
	mu      sync.Mutex
	pods    map[types.UID]map[string]volume.Volume
	mounts  map[string]string // container to its mounts
	used    int64
	fail    error
	kept    map[string]bool // persistent volumes that have data
	aside   []string        // of which something is left
	stuck   error           // they cannot be removed
	fails   error           // of Discard
	blind   error           // nobody can look at them
	fills   int
	refills int
}

func newShelf() *shelf {
	return &shelf{kept: map[string]bool{}, pods: map[types.UID]map[string]volume.Volume{}, mounts: map[string]string{}}
}

func (s *shelf) put(uid types.UID, all []volume.Volume) error {
	if s.fail != nil {
		return &volume.Error{Volume: "v", Err: s.fail}
	}
	for _, v := range all {
		if v.Persistent != "" {
			s.kept[v.Persistent] = true
		}
	}
	if s.pods[uid] == nil {
		s.pods[uid] = map[string]volume.Volume{}
	}
	for _, v := range all {
		s.pods[uid][v.Name] = v
	}
	return nil
}

func (s *shelf) Ensure(_ context.Context, uid types.UID, all []volume.Volume) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fills++
	return s.put(uid, all)
}

func (s *shelf) Refresh(_ context.Context, uid types.UID, all []volume.Volume) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refills++
	return s.put(uid, all)
}

func (s *shelf) Mounts(_ context.Context, uid types.UID, c *corev1.Container, _ []volume.Volume) ([]volume.Mount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []volume.Mount
	for _, m := range c.VolumeMounts {
		if _, ok := s.pods[uid][m.Name]; !ok {
			return nil, fmt.Errorf("cannot find volume %q", m.Name)
		}
		s.mounts[c.Name] += m.Name + ":" + m.SubPath + ";"
		out = append(out, volume.Mount{Source: m.Name, Destination: m.MountPath})
	}
	return out, nil
}

func (s *shelf) Usage(types.UID, string) (agent.Room, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return agent.Room{Bytes: s.used, Inodes: 1}, nil
}

func (s *shelf) Remove(_ context.Context, uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
	return nil
}

func (s *shelf) Pods() (out []types.UID, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.pods {
		out = append(out, uid)
	}
	return out, nil
}

// file is what a pod's volume holds.
func (s *shelf) file(p *corev1.Pod, name, path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.pods[p.UID][name].Files[path].Data)
}

func (s *shelf) calls() (fills, refills int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fills, s.refills
}

func (s *shelf) PersistentDir() string { return "/persistent" }

func (s *shelf) Kept() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.kept)), nil
}

func (s *shelf) Discard(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != nil {
		return s.fails
	}
	for uid, all := range s.pods {
		for _, v := range all {
			if v.Persistent == name {
				return fmt.Errorf("pod %s has it", uid)
			}
		}
	}
	if s.kept[name] {
		delete(s.kept, name)
		s.aside = append(s.aside, name, name, name) // it takes three steps
	}
	return nil
}

func (s *shelf) Clear(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blind != nil {
		return nil, s.blind
	}
	if s.stuck == nil && len(s.aside) > 0 {
		s.aside = s.aside[1:]
	}
	return slices.Compact(slices.Clone(s.aside)), s.stuck
}

func (s *shelf) held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods)
}

func (s *shelf) in(c *agent.Config) { c.Volumes = s }

func withVolume(p *corev1.Pod, name string, source corev1.VolumeSource) *corev1.Pod {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	return p
}

func secretVolume(name string) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
}

// A pod whose Secret is not there waits in ContainerCreating with an event, as in
// Kubernetes, runs as soon as it comes, and sees each later value without a restart.
func TestVolumesAreFilledAndFollowTheirObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		p := withVolume(pod("a"), "v", secretVolume("s"))
		p.Spec.Containers[0].VolumeMounts[0].SubPathExpr = "$(NAME)/x"
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NAME", Value: "web"}}
		s.assign(p)
		time.Sleep(5 * time.Second) // a pod that comes up tells of it lazily
		synctest.Wait()
		st := s.state(p, "c0")
		if st.State.Waiting == nil || st.State.Waiting.Reason != "ContainerCreating" || machine.Calls("EnsureSandbox") != 0 {
			t.Errorf("%+v, %d sandboxes", st.State, machine.Calls("EnsureSandbox"))
		}
		if said := s.said("FailedMount"); len(said) == 0 || !strings.Contains(said[0], `MountVolume.SetUp failed for volume "v" : secret "s" not found`) {
			t.Errorf("events: %q", said)
		}
		s.live <- setSecret(t, "s", "hunter2")
		synctest.Wait()
		if s.state(p, "c0").State.Running == nil || vols.file(p, "v", "k") != "hunter2" || vols.mounts["c0"] != "v:web/x;" {
			t.Fatalf("%+v, %+v", s.state(p, "c0"), vols)
		}
		before := ids(t, machine)
		s.live <- setSecret(t, "s", "hunter3")
		synctest.Wait()
		if got := vols.file(p, "v", "k"); got != "hunter3" || ids(t, machine)["a/c0"] != before["a/c0"] {
			t.Errorf("the running pod has %q", got)
		}
		// What is gone stays as it was, and is told of.
		s.live <- &session.Down{Message: &session.Down_Unset{Unset: &session.ObjectName{Resource: session.Secrets, Namespace: "default", Name: "s"}}}
		s.live <- setPod(t, p)
		synctest.Wait()
		if got := vols.file(p, "v", "k"); got != "hunter3" || ids(t, machine)["a/c0"] != before["a/c0"] || len(s.said("FailedMount")) < 2 {
			t.Errorf("the running pod has %q, events %q", got, s.said("FailedMount"))
		}
		// Nor does a restart of the container need it.
		crash(t, machine, p, 1)
		time.Sleep(time.Minute)
		if s.state(p, "c0").State.Running == nil || s.state(p, "c0").RestartCount != 1 {
			t.Errorf("after a crash: %+v", s.state(p, "c0"))
		}
		for _, e := range s.events {
			if strings.Contains(e, "hunter") {
				t.Errorf("a secret is in an event (R14): %s", e)
			}
		}
	})
}

// Labels and annotations in a volume follow the pod.
func TestVolumesFollowThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		p := withVolume(pod("a"), "v", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
			{Path: "memory", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c0", Resource: "limits.memory", Divisor: resource.MustParse("1Gi")}},
		}}})
		p.Labels = map[string]string{"a": "1"}
		s.assign(p)
		synctest.Wait()
		if vols.file(p, "v", "labels") != `a="1"` || vols.file(p, "v", "memory") != "8" {
			t.Errorf("%+v", vols.pods)
		}
		q := p.DeepCopy()
		q.Labels["a"] = "2"
		s.live <- setPod(t, q)
		synctest.Wait()
		if vols.file(p, "v", "labels") != `a="2"` || machine.Calls("StartContainer") != 1 {
			t.Errorf("%+v, %d starts", vols.pods, machine.Calls("StartContainer"))
		}
	})
}

// A disk that fails is tried again, with patience, before the start and after.
func TestVolumesThatFailAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		vols.fail = errors.New("no space left on device")
		run(t, s, machine, t.TempDir(), vols.in)
		p := withVolume(withVolume(pod("a"), "v", secretVolume("s")), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		s.live <- setSecret(t, "s", "one")
		s.assign(p)
		set := func(err error) {
			vols.mu.Lock()
			defer vols.mu.Unlock()
			vols.fail = err
		}
		time.Sleep(time.Minute)
		if n, _ := vols.calls(); n < 3 || n > 10 || s.state(p, "c0").State.Waiting == nil {
			t.Errorf("%d tries in a minute", n)
		}
		set(nil)
		time.Sleep(2 * time.Minute)
		if s.state(p, "c0").State.Running == nil {
			t.Fatal("not started when the disk had room again")
		}
		set(errors.New("no space left on device"))
		s.live <- setSecret(t, "s", "two")
		time.Sleep(time.Minute)
		if _, n := vols.calls(); n < 3 || n > 12 {
			t.Errorf("%d tries to bring it up to date in a minute", n)
		}
		set(nil)
		time.Sleep(2 * time.Minute)
		if got := vols.file(p, "v", "k"); got != "two" {
			t.Errorf("the pod has %q", got)
		}
		_, n := vols.calls()
		time.Sleep(4 * time.Minute)
		if _, now := vols.calls(); now != n {
			t.Error("an idle pod's volumes are written again and again")
		}
	})
}

// A subPathExpr that names an unknown variable, or leads out, is a
// CreateContainerConfigError.
func TestSubPathExprErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		run(t, s, machine, t.TempDir(), vols.in)
		for expr, want := range map[string]string{"$(NONE)": `missing value for "NONE"`, "a/../$(UP)": "must not contain '..'", "$(ABS)": "must not be an absolute path"} {
			p := withVolume(pod(fmt.Sprint("p", len(want))), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
			p.Spec.Containers[0].VolumeMounts[0].SubPathExpr = expr
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "UP", Value: ".."}, {Name: "ABS", Value: "/etc"}}
			s.assign(p)
			synctest.Wait()
			if w := s.state(p, "c0").State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, want) {
				t.Errorf("%s: %+v", expr, w)
			}
		}
	})
}

// The volumes of a pod go with it, also those of a pod that never had a sandbox and is
// known to nobody when the agent comes back.
func TestVolumesGoWithTheirPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols := newServer(t), fake.New(fake.Config{}), newShelf()
		vols.pods["uid-lost"] = map[string]volume.Volume{}
		run(t, s, machine, t.TempDir(), vols.in)
		p := withVolume(pod("a"), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		done := withVolume(pod("done"), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		done.Spec.RestartPolicy = corev1.RestartPolicyNever
		s.assign(p, done)
		time.Sleep(10 * time.Second)
		if all, _ := vols.Pods(); len(all) != 2 || slices.Contains(all, "uid-lost") {
			t.Errorf("kept: %v", all)
		}
		crash(t, machine, done, 0)
		if all, _ := vols.Pods(); !slices.Equal(all, []types.UID{p.UID}) {
			t.Errorf("after one has ended: %v", all)
		}
		gone := p.DeepCopy()
		gone.DeletionTimestamp, gone.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Now()}, new(int64(1))
		s.live <- setPod(t, gone)
		time.Sleep(5 * time.Second)
		s.live <- unsetPod(p)
		synctest.Wait()
		if vols.held() != 0 {
			t.Errorf("kept: %+v", vols.pods)
		}
	})
}

// An emptyDir that holds more than its sizeLimit has its pod evicted.
func TestSizeLimitEvicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine, vols, dir := newServer(t), fake.New(fake.Config{}), newShelf(), t.TempDir()
		vols.used = 1 << 20
		a := run(t, s, machine, dir, vols.in)
		limit := resource.MustParse("2Mi")
		p := withVolume(pod("a"), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}})
		other := withVolume(pod("b"), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		s.assign(p, other)
		time.Sleep(time.Minute)
		if s.status(p).Phase != corev1.PodRunning {
			t.Fatalf("%+v", s.status(p))
		}
		vols.mu.Lock()
		vols.used = 2<<20 + 1
		vols.mu.Unlock()
		time.Sleep(time.Minute)
		st := s.status(p)
		if want := `Usage of EmptyDir volume "d" exceeds the limit "2Mi". `; st.Phase != corev1.PodFailed || st.Reason != "Evicted" || st.Message != want {
			t.Errorf("%s %s %q", st.Phase, st.Reason, st.Message)
		}
		if len(s.said("Evicted")) != 1 || len(ids(t, machine)) != 1 || s.status(other).Phase != corev1.PodRunning {
			t.Errorf("events %q, running %v", s.said("Evicted"), ids(t, machine))
		}
		a.stop()
		run(t, s, machine, dir, vols.in)
		time.Sleep(time.Minute)
		if st := s.status(p); st.Phase != corev1.PodFailed || len(ids(t, machine)) != 1 {
			t.Errorf("after a restart of the agent: %s, %v", st.Phase, ids(t, machine))
		}
	})
}

// R10: a container whose postStart hook is not over runs, and an evicted pod with such
// a one has not ended. The hook does not hold the end up, nor does a long grace.
func TestR10_EvictedDuringAHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{began: time.Now()}
		s, machine, vols := newServer(t), commanded(d, func(agent.ContainerSpec) fake.Program { return fake.Program{Stubborn: true} }), newShelf()
		vols.used = 1 << 30
		limit := resource.MustParse("2Mi")
		p := withVolume(pod("a"), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}})
		p.Spec.TerminationGracePeriodSeconds = new(int64(1 << 30))
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: command("take", "1000h")}
		run(t, s, machine, t.TempDir(), vols.in)
		s.assign(p)
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if st := s.status(p); st.Phase == corev1.PodFailed && len(ids(t, machine)) > 0 {
				t.Fatalf("told as stopped while it runs: %+v", st)
			}
		}
		if st := s.status(p); st.Reason != "Evicted" || st.ContainerStatuses[0].State.Terminated == nil || len(ids(t, machine)) != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// An agent that is not given Volumes says so, and does not run a pod without them.
func TestNoVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, machine := newServer(t), fake.New(fake.Config{})
		run(t, s, machine, t.TempDir())
		p := withVolume(pod("a"), "d", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		s.assign(p)
		synctest.Wait()
		if said := s.said("FailedMount"); len(said) != 1 || !strings.Contains(said[0], "mounts no volumes") || len(ids(t, machine)) != 0 {
			t.Errorf("%q", said)
		}
	})
}
