package syncer

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"headway.dev/headway/api"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// page is a writer that may be read meanwhile.
type page struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.buf.String()
}

func ready(n int32) func(api.Object) {
	return func(o api.Object) {
		d := o.(*appsv1.Deployment)
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: n, AvailableReplicas: n}
	}
}

func TestFollowPrintsARollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c1 := w.repo.add("c1", "", map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": configMap("b", "1")})
		c2 := w.repo.add("c2", "c1", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "2")})
		w.push(c1)
		if v, err := w.s.Judge(t.Context(), Candidate{Commit: c2}); err != nil || v.Summary() != "3 of 3 objects change" {
			t.Errorf("summary %v %v", v.Summary(), err)
		}
		var out page
		go func() {
			if err := w.s.Follow(t.Context(), c2, &out); err != nil {
				t.Errorf("follow: %v", err)
			}
		}()
		synctest.Wait()
		if got := out.String(); got != "plan: 1 object to create, 1 to update, 1 to delete\n" {
			t.Errorf("first %q", got)
		}
		w.push(c2)
		synctest.Wait()
		for _, n := range []int32{1, 2, 2, 3} {
			w.change("deployments", "default", "web", ready(n))
			w.settle()
			synctest.Wait()
		}
		want := `plan: 1 object to create, 1 to update, 1 to delete
ConfigMap default/a  healthy (0.0 s)
Deployment default/web  0/3 ready
ConfigMap default/b  deleted
Deployment default/web  1/3 ready
Deployment default/web  2/3 ready
Deployment default/web  healthy (0.0 s)
healthy: commit c20000000000, 2 objects, 0.0 s
`
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestR13_FollowSaysSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c1 := w.repo.add("c1", "", map[string]string{"web.yaml": app})
		c2 := w.repo.add("c2", "c1", map[string]string{"web.yaml": edit(app, "web:1", "web:2")})
		w.push(c1)
		var out page
		go func() {
			if err := w.s.Follow(t.Context(), c1, &out); err != nil {
				t.Errorf("follow: %v", err)
			}
		}()
		synctest.Wait()
		w.push(c2)
		synctest.Wait()
		if got := out.String(); !strings.HasSuffix(got, "superseded by commit c20000000000\n") {
			t.Errorf("got %q", got)
		}
	})
}

func TestFollowSaysWhyItFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c1 := w.repo.add("c1", "", map[string]string{"web.yaml": app})
		w.push(c1)
		var out page
		go func() {
			if err := w.s.Follow(t.Context(), c1, &out); err != nil {
				t.Errorf("follow: %v", err)
			}
		}()
		synctest.Wait()
		w.change("deployments", "default", "web", func(o api.Object) {
			d := o.(*appsv1.Deployment)
			d.Status.ObservedGeneration = d.Generation
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
		})
		w.settle()
		synctest.Wait()
		if got := out.String(); !strings.HasSuffix(got, "failed after 0.0 s: Deployment default/web: 0/3 ready, no progress within the deadline\n") {
			t.Errorf("got %q", got)
		}
	})
}

func TestFollowEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.s.Follow(ctx, commitID("c1"), &page{}) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("err %v", err)
		}
	})
}

func TestHealth(t *testing.T) {
	waiting := func(reason string, restarts int32) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 7}},
		}}}}
	}
	probed := func(started bool) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", StartupProbe: &corev1.Probe{}, ReadinessProbe: &corev1.Probe{}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "c", Started: &started, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}}},
		}
	}
	job := func(c batchv1.JobConditionType) *batchv1.Job {
		return &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: c, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}}}
	}
	now := metav1.Now()
	for _, tt := range []struct {
		name  string
		obj   api.Object
		state State
		text  string
	}{
		{"nothing", nil, Missing, "does not exist"},
		{"config map", &corev1.ConfigMap{}, Healthy, ""},
		{"terminating", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}}, Progressing, "is being deleted"},
		{"unscheduled pod", &corev1.Pod{}, Progressing, "waiting for a node"},
		{"crashing pod", waiting("CrashLoopBackOff", 1), Progressing, "starting: container c of pod p crashes: exit code 7"},
		{"crash loop", waiting("CrashLoopBackOff", 3), Failed, "starting: container c of pod p crashes: exit code 7, 3 restarts"},
		{"first pull error", waiting("ErrImagePull", 0), Progressing, "starting: container c of pod p: ErrImagePull"},
		{"pull back-off", waiting("ImagePullBackOff", 0), Failed, "starting: container c of pod p: ImagePullBackOff"},
		{"no such secret", waiting("CreateContainerConfigError", 0), Failed, "starting: container c of pod p: CreateContainerConfigError"},
		{"no such program", waiting("RunContainerError", 0), Failed, "starting: container c of pod p: RunContainerError"},
		{"no such device", waiting("CreateContainerError", 0), Failed, "starting: container c of pod p: CreateContainerError"},
		{"no set", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ReplicaSetCreateError", Message: "exceeded quota"}}}}, Failed, "exceeded quota"},
		{"pod that starts", probed(false), Progressing, "starting: container c of pod p runs, and its startup probe has not succeeded yet"},
		{"pod that is not ready", probed(true), Progressing, "starting: container c of pod p runs, and its readiness probe has not succeeded"},
		{"succeeded pod", &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, Healthy, "succeeded"},
		{"evicted pod", &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}}, Failed, "failed: Evicted"},
		{"complete job", job(batchv1.JobComplete), Healthy, "complete"},
		{"failed job", job(batchv1.JobFailed), Failed, "failed: BackoffLimitExceeded"},
		{"running job", &batchv1.Job{}, Progressing, "0/1 succeeded"},
		{"cron job", &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "* * * * *"}}, Healthy, "scheduled * * * * *"},
		{"replica set", &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{AvailableReplicas: 1}}, Healthy, "1/1 ready"},
		{"replication controller", &corev1.ReplicationController{Status: corev1.ReplicationControllerStatus{Replicas: 2, AvailableReplicas: 1}}, Progressing, "1/1 ready, 1 to stop"},
		{"old pods", &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 1, AvailableReplicas: 1}}, Progressing, "1/1 ready, 1 old to stop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, text := Health(tt.obj, newWorld(t).st)
			if state != tt.state || text != tt.text {
				t.Errorf("got %s %q, want %s %q", state, text, tt.state, tt.text)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	w.settle()
	if r := w.s.Status(); r.State != Progressing || r.Reason != "waiting for the first commit on refs/heads/main" {
		t.Errorf("report %+v", r)
	}
	w.push(w.repo.add("c1", "", map[string]string{"web.yaml": app, "a.yaml": configMap("a", "1")}))
	r := w.s.Status()
	if r.State != Progressing || r.Reason != "Deployment default/web: 0/3 ready" || len(r.Objects) != 2 || r.Applied != commitID("c1") {
		t.Errorf("report %+v", r)
	}
	if o := r.Objects[1]; o.Path != "web.yaml" || o.Line != 1 || o.Commit != commitID("c1") || o.Title() != "Deployment default/web" {
		t.Errorf("object %+v", o)
	}
	w.change("deployments", "default", "web", ready(3))
	w.settle()
	if r := w.s.Status(); r.State != Healthy || r.Reason != "" {
		t.Errorf("report %+v", r)
	}
	w.push(w.repo.add("c2", "c1", map[string]string{"web.yaml": "nonsense"}))
	if r := w.s.Status(); r.State != Failed || !strings.Contains(r.Reason, "is refused") || len(r.Problems) == 0 {
		t.Errorf("report %+v", r)
	}
}
