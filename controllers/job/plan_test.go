package job

import (
	"fmt"
	"math"
	"testing"
	"time"

	"headway.dev/headway/api"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func newJob(change func(*batchv1.JobSpec)) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work", UID: "u-1"}}
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	if change != nil {
		change(&j.Spec)
	}
	api.Scheme().Default(j)
	return j
}

type podOption func(*corev1.Pod)

func pod(n int, options ...podOption) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: fmt.Sprintf("work-%d", n), Finalizers: []string{batchv1.JobTrackingFinalizer},
		CreationTimestamp: metav1.NewTime(noon),
	}}
	p.Spec.NodeName = "n1"
	p.Status.Phase = corev1.PodRunning
	for _, o := range options {
		o(p)
	}
	return p
}

func phase(ph corev1.PodPhase) podOption { return func(p *corev1.Pod) { p.Status.Phase = ph } }
func deleting(p *corev1.Pod)             { p.DeletionTimestamp = &metav1.Time{Time: noon} }
func counted(p *corev1.Pod)              { p.Finalizers = nil }
func unbound(p *corev1.Pod)              { p.Spec.NodeName = ""; p.Status.Phase = corev1.PodPending }
func restarted(n int32) podOption {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: n}} }
}
func ended(at time.Time) podOption {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}}}
	}
}

// summary is what the tables compare: how many of each step, and the end.
func summary(p plan) string {
	n := map[verb]int{}
	for _, s := range p.steps {
		n[s.verb]++
	}
	out := fmt.Sprintf("create=%d remove=%d count=%d delete=%d", n[createPod], n[removePod], n[countPod], n[deleteJob])
	if p.job != nil {
		s := p.job.Status
		out += fmt.Sprintf(" active=%d succeeded=%d failed=%d", s.Active, s.Succeeded, s.Failed)
		for _, c := range s.Conditions {
			out += " " + string(c.Type) + "/" + c.Reason
		}
	}
	if p.after > 0 {
		out += " after=" + p.after.String()
	}
	return out
}

func TestDecide(t *testing.T) {
	completions := func(n, par int32) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = &n, &par }
	}
	cases := []struct {
		name   string
		spec   func(*batchv1.JobSpec)
		status batchv1.JobStatus
		pods   []*corev1.Pod
		now    time.Time
		want   string
	}{
		{"starts one pod by default", nil, batchv1.JobStatus{}, nil, noon,
			"create=1 remove=0 count=0 delete=0 active=1 succeeded=0 failed=0"},
		{"starts parallelism pods", completions(5, 3), batchv1.JobStatus{}, nil, noon,
			"create=3 remove=0 count=0 delete=0 active=3 succeeded=0 failed=0"},
		{"never more than are still missing", completions(5, 3), batchv1.JobStatus{Succeeded: 4}, nil, noon,
			"create=1 remove=0 count=0 delete=0 active=1 succeeded=4 failed=0"},
		{"counts and replaces a success in one step", completions(3, 2), batchv1.JobStatus{}, []*corev1.Pod{pod(1, phase(corev1.PodSucceeded)), pod(2)}, noon,
			"create=1 remove=0 count=1 delete=0 active=2 succeeded=1 failed=0"},
		{"a counted pod is not counted again", completions(3, 1), batchv1.JobStatus{Succeeded: 1}, []*corev1.Pod{pod(1, phase(corev1.PodSucceeded), counted)}, noon,
			"create=1 remove=0 count=0 delete=0 active=1 succeeded=1 failed=0"},
		{"completes", completions(1, 1), batchv1.JobStatus{}, []*corev1.Pod{pod(1, phase(corev1.PodSucceeded))}, noon,
			"create=0 remove=0 count=1 delete=0 active=0 succeeded=1 failed=0 SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached"},
		{"a failure is replaced after 10 s", completions(1, 1), batchv1.JobStatus{}, []*corev1.Pod{pod(1, phase(corev1.PodFailed), ended(noon.Add(-4*time.Second)))}, noon,
			"create=0 remove=0 count=1 delete=0 active=0 succeeded=0 failed=1 after=6s"},
		{"the second failure waits 20 s", completions(1, 1), batchv1.JobStatus{Failed: 1}, []*corev1.Pod{
			pod(1, phase(corev1.PodFailed), counted, ended(noon.Add(-40*time.Second))), pod(2, phase(corev1.PodFailed), ended(noon))}, noon,
			"create=0 remove=0 count=1 delete=0 active=0 succeeded=0 failed=2 after=20s"},
		{"a clock that was set back does not lengthen the wait", completions(1, 1), batchv1.JobStatus{Failed: 1},
			[]*corev1.Pod{pod(1, phase(corev1.PodFailed), counted, ended(noon.Add(time.Hour)))}, noon,
			"create=0 remove=0 count=0 delete=0 active=0 succeeded=0 failed=1 after=10s"},
		{"the limit fails the Job and ends what runs", func(s *batchv1.JobSpec) { completions(4, 2)(s); s.BackoffLimit = ptr(int32(0)) }, batchv1.JobStatus{},
			[]*corev1.Pod{pod(1, phase(corev1.PodFailed)), pod(2)}, noon,
			"create=0 remove=1 count=1 delete=0 active=0 succeeded=0 failed=2 FailureTarget/BackoffLimitExceeded"},
		{"it is Failed once nothing runs any more", func(s *batchv1.JobSpec) { completions(4, 2)(s); s.BackoffLimit = ptr(int32(0)) },
			batchv1.JobStatus{Failed: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonBackoffLimitExceeded}}},
			[]*corev1.Pod{pod(2, deleting, phase(corev1.PodFailed))}, noon,
			"create=0 remove=0 count=1 delete=0 active=0 succeeded=0 failed=2 FailureTarget/BackoffLimitExceeded Failed/BackoffLimitExceeded"},
		{"a pod that never ran is counted when the Job ends", func(s *batchv1.JobSpec) { completions(4, 2)(s); s.BackoffLimit = ptr(int32(0)) }, batchv1.JobStatus{},
			[]*corev1.Pod{pod(1, phase(corev1.PodFailed)), pod(2, unbound)}, noon,
			"create=0 remove=1 count=1 delete=0 active=0 succeeded=0 failed=2 FailureTarget/BackoffLimitExceeded"},
		{"restarts count under OnFailure, and reaching the limit is enough", func(s *batchv1.JobSpec) {
			s.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			s.BackoffLimit = ptr(int32(2))
		}, batchv1.JobStatus{}, []*corev1.Pod{pod(1, restarted(2))}, noon,
			"create=0 remove=1 count=0 delete=0 active=0 succeeded=0 failed=1 FailureTarget/BackoffLimitExceeded"},
		{"the deadline ends the Job", func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr(int64(60)) },
			batchv1.JobStatus{StartTime: &metav1.Time{Time: noon.Add(-time.Minute)}}, []*corev1.Pod{pod(1)}, noon,
			"create=0 remove=1 count=0 delete=0 active=0 succeeded=0 failed=1 FailureTarget/DeadlineExceeded"},
		{"the deadline is waited for", func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr(int64(60)) },
			batchv1.JobStatus{StartTime: &metav1.Time{Time: noon.Add(-15 * time.Second)}}, []*corev1.Pod{pod(1)}, noon,
			"create=0 remove=0 count=0 delete=0 active=1 succeeded=0 failed=0 after=45s"},
		{"no deadline is so late that it is before now", func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr(int64(math.MaxInt64)) },
			batchv1.JobStatus{StartTime: &metav1.Time{Time: noon.Add(-15 * time.Second)}}, []*corev1.Pod{pod(1)}, noon,
			"create=0 remove=0 count=0 delete=0 active=1 succeeded=0 failed=0 after=875999h59m45s"},
		{"a pod that is being deleted counts as failed and is replaced", func(s *batchv1.JobSpec) {}, batchv1.JobStatus{},
			[]*corev1.Pod{pod(1, deleting, ended(noon.Add(-time.Minute)))}, noon,
			"create=1 remove=0 count=1 delete=0 active=1 succeeded=0 failed=1"},
		{"with podReplacementPolicy Failed it keeps its place", func(s *batchv1.JobSpec) { s.PodReplacementPolicy = ptr(batchv1.Failed) }, batchv1.JobStatus{},
			[]*corev1.Pod{pod(1, deleting)}, noon,
			"create=0 remove=0 count=0 delete=0 active=0 succeeded=0 failed=0"},
		{"lower parallelism drops the least advanced", completions(9, 1), batchv1.JobStatus{}, []*corev1.Pod{pod(1), pod(2, unbound)}, noon,
			"create=0 remove=1 count=0 delete=0 active=1 succeeded=0 failed=0"},
		{"a work queue lets the others finish", func(s *batchv1.JobSpec) { s.Parallelism = ptr(int32(3)); s.Completions = nil },
			batchv1.JobStatus{}, []*corev1.Pod{pod(1, phase(corev1.PodSucceeded)), pod(2)}, noon,
			"create=0 remove=0 count=1 delete=0 active=1 succeeded=1 failed=0"},
		{"a work queue ends when one succeeded and none run", func(s *batchv1.JobSpec) { s.Parallelism = ptr(int32(2)); s.Completions = nil },
			batchv1.JobStatus{}, []*corev1.Pod{pod(1, phase(corev1.PodSucceeded)), pod(2, phase(corev1.PodSucceeded))}, noon,
			"create=0 remove=0 count=2 delete=0 active=0 succeeded=2 failed=0 SuccessCriteriaMet/CompletionsReached Complete/CompletionsReached"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			job := newJob(nil)
			if c.spec != nil {
				job = newJob(c.spec)
			}
			job.Status = c.status
			if got := summary(decide(observed{job: job, pods: c.pods}, c.now)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestTimeToLiveDeletesAFinishedJob(t *testing.T) {
	job := newJob(func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptr(int32(30)) })
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}
	if got := decide(observed{job: job}, noon.Add(10*time.Second)); len(got.steps) != 0 || got.after != 20*time.Second {
		t.Errorf("before its time: %s", summary(got))
	}
	if got := decide(observed{job: job}, noon.Add(30*time.Second)); len(got.steps) != 1 || got.steps[0].verb != deleteJob {
		t.Errorf("after its time: %s", summary(got))
	}
}

func TestR3_TimeToLiveWaitsForTheDoneRecord(t *testing.T) {
	job := newJob(func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptr(int32(0)) })
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}
	if got := decide(observed{job: job, unrecorded: true}, noon.Add(time.Hour)); len(got.steps) != 0 || got.after == 0 {
		t.Errorf("without its record: %s", summary(got))
	}
	if got := decide(observed{job: job}, noon.Add(time.Hour)); len(got.steps) != 1 || got.steps[0].verb != deleteJob {
		t.Errorf("with its record: %s", summary(got))
	}
}

// A plan never has more pods than one transaction holds, and its status tells of
// exactly what it does.
func TestALargeJobIsDoneInParts(t *testing.T) {
	const n = 3*most + 7
	job := newJob(func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr(int32(n)), ptr(int32(n)) })
	job.Spec.Selector = &metav1.LabelSelector{} // every pod
	p := decide(observed{job: job}, noon)
	if !p.more || created(p.steps) != most || p.job.Status.Active != most {
		t.Fatalf("creating: %s", summary(p))
	}
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, pod(i, phase(corev1.PodSucceeded)))
	}
	for looks := 1; ; looks++ {
		p = decide(observed{job: job, pods: pods}, noon)
		if len(p.steps) > most {
			t.Fatalf("%d steps in one plan", len(p.steps))
		}
		for _, s := range p.steps {
			s.pod.Finalizers = nil
		}
		job = p.job
		if _, over := finished(job); over {
			if p.more || looks != 4 || job.Status.Succeeded != n {
				t.Fatalf("the end after %d looks: %s", looks, summary(p))
			}
			return
		}
		if !p.more || looks > 4 {
			t.Fatalf("look %d: %s", looks, summary(p))
		}
	}
}

// What must end is ended in parts too, and each pod that never ran counts once.
func TestALargeJobEndsInParts(t *testing.T) {
	const n = most + 5
	job := newJob(func(s *batchv1.JobSpec) {
		s.Parallelism, s.Completions, s.ActiveDeadlineSeconds = ptr(int32(n)), ptr(int32(n)), ptr(int64(1))
	})
	job.Spec.Selector = &metav1.LabelSelector{} // every pod
	job.Status.StartTime = &metav1.Time{Time: noon.Add(-time.Hour)}
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, pod(i, unbound))
	}
	first := decide(observed{job: job, pods: pods}, noon)
	if !first.more || first.job.Status.Failed != most || first.job.Status.Active != 5 {
		t.Fatalf("first part: %s", summary(first))
	}
	second := decide(observed{job: first.job, pods: pods[most:]}, noon)
	if second.more || second.job.Status.Failed != n || second.job.Status.Active != 0 {
		t.Fatalf("second part: %s", summary(second))
	}
	last := decide(observed{job: second.job}, noon)
	if _, over := finished(last.job); !over || last.job.Status.Failed != n {
		t.Fatalf("the end: %s", summary(last))
	}
}
