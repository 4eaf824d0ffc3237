package job

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
func TestPodFailurePolicy(t *testing.T) {
	old := noon.Add(-time.Hour)
	few := func(s *batchv1.JobSpec) {
		s.BackoffLimit, s.Completions, s.Parallelism = ptr(int32(0)), ptr(int32(3)), ptr(int32(2))
	}
	with := func(rules ...batchv1.PodFailurePolicyRule) *batchv1.Job {
		return newJob(func(s *batchv1.JobSpec) { few(s); ignoring(rules...)(s) })
	}
	named := onExit("FailJob", "In", 42)
	named.OnExitCodes.ContainerName = ptr("other")
	cases := []struct {
		name string
		job  *batchv1.Job
		pods []*corev1.Pod
		want string
	}{
		{"FailJob ends the Job before the limit does", with(onExit("FailJob", "In", 42)), []*corev1.Pod{pod(1, exit(42, old)), pod(2)},
			"count 1 remove 2 active=0 failed=2 done=[] FailureTarget=True/PodFailurePolicy"},
		{"Ignore does not count", with(onExit("Ignore", "In", 42)), []*corev1.Pod{pod(1, exit(42, old))},
			"count 1 create create active=2 failed=0 done=[]"},
		{"what is ignored is waited for all the same", with(onExit("Ignore", "In", 42)), []*corev1.Pod{pod(1, exit(42, noon))},
			"count 1 active=0 failed=0 done=[] after=10s"},
		{"Count counts, and later rules are not asked", with(onExit("Count", "In", 42), onExit("Ignore", "In", 42)), []*corev1.Pod{pod(1, exit(42, old))},
			"count 1 active=0 failed=1 done=[] FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded"},
		{"NotIn is any other failure", with(onExit("Ignore", "NotIn", 1, 2)), []*corev1.Pod{pod(1, exit(3, old))},
			"count 1 create create active=2 failed=0 done=[]"},
		{"a container that succeeded never fits", with(onExit("Ignore", "NotIn", 1, 2)), []*corev1.Pod{pod(1, exit(0, old))},
			"count 1 active=0 failed=1 done=[] FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded"},
		{"a rule for another container does not fit", with(named), []*corev1.Pod{pod(1, exit(42, old))},
			"count 1 active=0 failed=1 done=[] FailureTarget=True/BackoffLimitExceeded Failed=True/BackoffLimitExceeded"},
		{"a pod's condition", with(onDisruption("Ignore")), []*corev1.Pod{pod(1, has(corev1.DisruptionTarget), func(p *corev1.Pod) { p.CreationTimestamp.Time = old })},
			"count 1 create create active=2 failed=0 done=[]"},
		{"a pod that is still ending is not judged under podReplacementPolicy Failed", newJob(func(s *batchv1.JobSpec) {
			few(s)
			ignoring(onDisruption("FailJob"))(s)
			s.PodReplacementPolicy = ptr(batchv1.Failed)
		}), []*corev1.Pod{pod(1, has(corev1.DisruptionTarget), deleting, phase(corev1.PodRunning)), pod(2)},
			"active=1 failed=0 done=[]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := told(decide(observed{job: c.job, pods: c.pods}, noon)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestAFailJobMessageNamesPodAndRule(t *testing.T) {
	job := newJob(ignoring(onExit("Ignore", "In", 1), onExit("FailJob", "In", 42)))
	p := decide(observed{job: job, pods: []*corev1.Pod{pod(1, exit(42, noon))}}, noon)
	want := "Container c for pod default/work-1 failed with exit code 42 matching FailJob rule at index 1"
	if c := condition(&p.job.Status, batchv1.JobFailed); c == nil || c.Message != want {
		t.Errorf("conditions %+v", p.job.Status.Conditions)
	}
}

// https://kubernetes.io/docs/concepts/workloads/controllers/job/#suspending-a-job
func TestSuspend(t *testing.T) {
	spec := func(suspend bool) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) {
			s.Suspend, s.Completions, s.Parallelism, s.ActiveDeadlineSeconds = &suspend, ptr(int32(4)), ptr(int32(2)), ptr(int64(60))
		}
	}
	p := decide(observed{job: newJob(spec(true))}, noon)
	if got := told(p); got != "active=0 failed=0 done=[] Suspended=True/JobSuspended" || p.job.Status.StartTime != nil {
		t.Errorf("made suspended: %s, started %v", got, p.job.Status.StartTime)
	}

	running := newJob(spec(true))
	running.Status.StartTime = &metav1.Time{Time: noon.Add(-time.Hour)}
	p = decide(observed{job: running, pods: []*corev1.Pod{pod(1), pod(2, unbound), pod(3, phase(corev1.PodFailed))}}, noon)
	if got := told(p); got != "count 3 remove 1 remove 2 active=0 failed=1 done=[] Suspended=True/JobSuspended" || p.job.Status.StartTime != nil || *p.job.Status.Terminating != 1 {
		t.Errorf("suspended while it ran: %s, status %+v", got, p.job.Status)
	}

	resumed := newJob(spec(false))
	resumed.Status = p.job.Status
	p = decide(observed{job: resumed}, noon.Add(time.Hour))
	if got := told(p); got != "create create active=2 failed=1 done=[] Suspended=False/JobResumed after=1m0s" || !p.job.Status.StartTime.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("resumed: %s, started %v", got, p.job.Status.StartTime)
	}
}

// https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-replacement-policy
func TestReplacement(t *testing.T) {
	failedOnly := func(n int32) *batchv1.Job {
		return newJob(func(s *batchv1.JobSpec) {
			s.PodReplacementPolicy, s.Completions, s.Parallelism = ptr(batchv1.Failed), ptr(int32(9)), &n
		})
	}
	early := func(p *corev1.Pod) {
		p.CreationTimestamp.Time = noon.Add(-time.Hour)
		p.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Hour)}
	}
	for name, c := range map[string]struct {
		job  *batchv1.Job
		pods []*corev1.Pod
		want string
	}{
		"a terminating pod keeps its place":                      {failedOnly(2), []*corev1.Pod{pod(1, deleting), pod(2)}, "active=1 failed=0 done=[]"},
		"until it has failed":                                    {failedOnly(2), []*corev1.Pod{pod(1, early, phase(corev1.PodFailed)), pod(2)}, "count 1 create active=2 failed=1 done=[]"},
		"one that no node has will never end, so it failed":      {failedOnly(2), []*corev1.Pod{pod(1, unbound, early), pod(2)}, "count 1 create active=2 failed=1 done=[]"},
		"terminating pods do not push out those that run":        {failedOnly(2), []*corev1.Pod{pod(1, deleting), pod(2, deleting), pod(3), pod(4)}, "active=2 failed=0 done=[]"},
		"by default a terminating pod is replaced at once":       {newJob(nil), []*corev1.Pod{pod(1, early)}, "count 1 create active=1 failed=1 done=[]"},
		"with an index, too: the index stays taken till then":    {indexedJob(9, 2, func(s *batchv1.JobSpec) { s.PodReplacementPolicy = ptr(batchv1.Failed) }), []*corev1.Pod{pod(1, at(0), deleting)}, "create 1 active=1 failed=0 done=[]"},
		"and by default another pod may have it in the meantime": {indexedJob(9, 2), []*corev1.Pod{pod(1, at(0), early)}, "count 1 create 0 create 1 active=2 failed=1 done=[]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told(decide(observed{job: c.job, pods: c.pods}, noon)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// The Job is over only when its last pod has stopped: Kubernetes 1.31 and later.
func TestTheEndWaitsForTerminatingPods(t *testing.T) {
	job := newJob(nil)
	job.Status = batchv1.JobStatus{Succeeded: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuccessCriteriaMet, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached}}}
	p := decide(observed{job: job, pods: []*corev1.Pod{pod(1, deleting, counted)}}, noon)
	if got := told(p); got != "active=0 failed=0 done=[] SuccessCriteriaMet=True/CompletionsReached" || *p.job.Status.Terminating != 1 {
		t.Errorf("one terminates: %s", got)
	}
	p = decide(observed{job: p.job}, noon)
	if got := told(p); got != "active=0 failed=0 done=[] SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached" || p.job.Status.CompletionTime == nil || *p.job.Status.Terminating != 0 {
		t.Errorf("it has stopped: %s", got)
	}
}

// https://kubernetes.io/docs/concepts/workloads/controllers/job/#specifying-your-own-pod-selector
func TestAdoption(t *testing.T) {
	job := newJob(func(s *batchv1.JobSpec) {
		s.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "work"}}
	})
	mine := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "work"} }
	bare := func(p *corev1.Pod) { p.Finalizers = nil }
	o := observed{job: job, pods: []*corev1.Pod{pod(1, mine), pod(2)}, orphans: []*corev1.Pod{
		pod(3, mine, bare), pod(4, mine, bare, phase(corev1.PodSucceeded)), pod(5, mine, phase(corev1.PodSucceeded)), pod(6, mine, deleting), pod(7)}}
	p := decide(o, noon)
	if got := told(p); got != "loose 2 adopt 3 adopt 5" || !p.more || p.job != nil {
		t.Errorf("got %s", got)
	}
}
