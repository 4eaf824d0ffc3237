package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/admission"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func at(index int, failures ...int) podOption {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)}
		for i, annotation := range []string{batchv1.JobIndexFailureCountAnnotation, batchv1.JobIndexIgnoredFailureCountAnnotation} {
			if i < len(failures) {
				p.Annotations[annotation] = strconv.Itoa(failures[i])
			}
		}
	}
}

func exit(code int32, at time.Time) podOption {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, FinishedAt: metav1.NewTime(at)}}}}
	}
}

func has(t corev1.PodConditionType) podOption {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
	}
}

func indexedJob(completions, parallelism int32, more ...func(*batchv1.JobSpec)) *batchv1.Job {
	return newJob(func(s *batchv1.JobSpec) {
		s.CompletionMode, s.Completions, s.Parallelism = ptr(batchv1.IndexedCompletion), &completions, &parallelism
		for _, f := range more {
			f(s)
		}
	})
}

func perIndexLimit(n int32) func(*batchv1.JobSpec) {
	return func(s *batchv1.JobSpec) { s.BackoffLimitPerIndex = &n }
}

func ignoring(rules ...batchv1.PodFailurePolicyRule) func(*batchv1.JobSpec) {
	return func(s *batchv1.JobSpec) { s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules} }
}

func onExit(action batchv1.PodFailurePolicyAction, op batchv1.PodFailurePolicyOnExitCodesOperator, codes ...int32) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: op, Values: codes}}
}

func onDisruption(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
	return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}
}

// told is what a plan does with indexes, pods and the status.
func told(p plan) string {
	var parts []string
	for _, s := range p.steps {
		switch {
		case s.verb == createPod && s.index != none:
			part := fmt.Sprintf("create %d", s.index)
			if s.failures+s.ignored > 0 {
				part += fmt.Sprintf("(%d,%d)", s.failures, s.ignored)
			}
			parts = append(parts, part)
		case s.verb == createPod:
			parts = append(parts, "create")
		case s.pod != nil:
			parts = append(parts, strings.TrimSuffix(string(s.verb), " pod")+" "+strings.TrimPrefix(s.pod.Name, "work-"))
		}
	}
	if p.job != nil {
		s := p.job.Status
		parts = append(parts, fmt.Sprintf("active=%d failed=%d done=[%s]", s.Active, s.Failed, s.CompletedIndexes))
		if s.FailedIndexes != nil {
			parts = append(parts, "lost=["+*s.FailedIndexes+"]")
		}
		for _, c := range s.Conditions {
			parts = append(parts, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
	}
	if p.after > 0 {
		parts = append(parts, "after="+p.after.String())
	}
	return strings.Join(parts, " ")
}

// https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode,
// #backoff-limit-per-index, #success-policy, #pod-failure-policy
func TestIndexes(t *testing.T) {
	old := noon.Add(-time.Hour)
	succeeded := phase(corev1.PodSucceeded)
	withPolicy := func(rules ...batchv1.SuccessPolicyRule) func(*batchv1.JobSpec) {
		return func(s *batchv1.JobSpec) { s.SuccessPolicy = &batchv1.SuccessPolicy{Rules: rules} }
	}
	cases := []struct {
		name   string
		job    *batchv1.Job
		status batchv1.JobStatus
		pods   []*corev1.Pod
		want   string
	}{
		{"pods get the lowest indexes", indexedJob(5, 2), batchv1.JobStatus{}, nil, "create 0 create 1 active=2 failed=0 done=[]"},
		{"an index that succeeded or is active is not taken", indexedJob(9, 3), batchv1.JobStatus{CompletedIndexes: "0-2,4"}, []*corev1.Pod{pod(1, at(3)), pod(2, at(6))},
			"create 5 active=3 failed=0 done=[0-2,4]"},
		{"a success is kept as an index", indexedJob(4, 1), batchv1.JobStatus{CompletedIndexes: "0"}, []*corev1.Pod{pod(1, at(1), succeeded)},
			"count 1 create 2 active=1 failed=0 done=[0,1]"},
		{"the same index twice counts once", indexedJob(3, 1), batchv1.JobStatus{CompletedIndexes: "0"}, []*corev1.Pod{pod(1, at(0), succeeded)},
			"count 1 create 1 active=1 failed=0 done=[0]"},
		{"it is complete when each index succeeded", indexedJob(2, 2), batchv1.JobStatus{CompletedIndexes: "1"}, []*corev1.Pod{pod(1, at(0), succeeded)},
			"count 1 active=0 failed=0 done=[0,1] SuccessCriteriaMet=True/CompletionsReached Complete=True/CompletionsReached"},
		{"of two pods with one index the less advanced goes", indexedJob(2, 2), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0), unbound), pod(2, at(0)), pod(3, at(1))},
			"remove 1 active=2 failed=0 done=[]"},
		{"a pod without a valid index goes, and does not count", indexedJob(2, 2), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0)), pod(2), pod(3, at(2), phase(corev1.PodFailed)), pod(4, at(7))},
			"count 3 remove 4 remove 2 active=1 failed=0 done=[]"},
		{"fewer completions forget what is beyond them", indexedJob(2, 2), batchv1.JobStatus{CompletedIndexes: "0,3-5"}, nil,
			"create 1 active=1 failed=0 done=[0]"},
		{"the back-off is the Job's own without a limit per index", indexedJob(3, 2), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0), exit(1, noon.Add(-3*time.Second))), pod(2, at(1))},
			"count 1 active=1 failed=1 done=[] after=7s"},

		{"a failed index waits alone, and its pod is counted when it is replaced", indexedJob(4, 2, perIndexLimit(2)), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0, 0), exit(1, noon)), pod(2, at(1, 0))},
			"create 2 active=2 failed=0 done=[] lost=[] after=10s"},
		{"its replacement knows how often it failed", indexedJob(4, 2, perIndexLimit(2)), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0, 1), exit(1, old)), pod(2, at(1, 0))},
			"create 0(2,0) active=2 failed=0 done=[] lost=[]"},
		{"the back-off of an index grows with its failures", indexedJob(1, 1, perIndexLimit(9)), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0, 2), exit(1, noon))},
			"active=0 failed=0 done=[] lost=[] after=40s"},
		{"replaced, it is counted", indexedJob(4, 1, perIndexLimit(2)), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0, 0), exit(1, old)), pod(2, at(0, 1))},
			"count 1 active=1 failed=1 done=[] lost=[]"},
		{"beyond its limit an index is lost and the others go on", indexedJob(4, 1, perIndexLimit(1)), batchv1.JobStatus{FailedIndexes: ptr("3")}, []*corev1.Pod{pod(1, at(0, 1), exit(1, noon))},
			"count 1 create 1 active=1 failed=1 done=[] lost=[0,3]"},
		{"the Job fails at the end when an index is lost", indexedJob(2, 1, perIndexLimit(0)), batchv1.JobStatus{CompletedIndexes: "1"}, []*corev1.Pod{pod(1, at(0, 0), exit(1, noon))},
			"count 1 active=0 failed=1 done=[1] lost=[0] FailureTarget=True/FailedIndexes Failed=True/FailedIndexes"},
		{"or at once with more than maxFailedIndexes", indexedJob(9, 2, perIndexLimit(0), func(s *batchv1.JobSpec) { s.MaxFailedIndexes = ptr(int32(1)) }),
			batchv1.JobStatus{FailedIndexes: ptr("7")}, []*corev1.Pod{pod(1, at(0, 0), exit(1, noon)), pod(2, at(1, 0))},
			"count 1 remove 2 active=0 failed=2 done=[] lost=[0,7] FailureTarget=True/MaxFailedIndexesExceeded"},
		{"what waits for its back-off is counted when the Job ends", indexedJob(9, 2, perIndexLimit(5), func(s *batchv1.JobSpec) { s.ActiveDeadlineSeconds = ptr(int64(60)) }),
			batchv1.JobStatus{StartTime: &metav1.Time{Time: old}}, []*corev1.Pod{pod(1, at(0, 0), exit(1, noon))},
			"count 1 active=0 failed=1 done=[] lost=[] FailureTarget=True/DeadlineExceeded Failed=True/DeadlineExceeded"},

		{"FailIndex loses the index whatever its limit", indexedJob(3, 1, perIndexLimit(5), ignoring(onExit("FailIndex", "In", 42))), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0, 0), exit(42, noon))},
			"count 1 create 1 active=1 failed=1 done=[] lost=[0]"},
		{"Ignore does not use up the index's limit", indexedJob(1, 1, perIndexLimit(0), ignoring(onDisruption("Ignore"))), batchv1.JobStatus{}, []*corev1.Pod{pod(1, at(0, 0), has(corev1.DisruptionTarget), func(p *corev1.Pod) { p.CreationTimestamp.Time = old })},
			"create 0(0,1) active=1 failed=0 done=[] lost=[]"},

		{"a successPolicy by count", indexedJob(9, 3, withPolicy(batchv1.SuccessPolicyRule{SucceededCount: ptr(int32(2))})), batchv1.JobStatus{CompletedIndexes: "4"},
			[]*corev1.Pod{pod(1, at(0), succeeded), pod(2, at(1)), pod(3, at(2), unbound)},
			"count 1 remove 2 remove 3 active=0 failed=0 done=[0,4] SuccessCriteriaMet=True/SuccessPolicy"},
		{"by indexes, all of them", indexedJob(9, 1, withPolicy(batchv1.SuccessPolicyRule{SucceededIndexes: ptr("0,2-3")})), batchv1.JobStatus{CompletedIndexes: "0,2"}, []*corev1.Pod{pod(1, at(1))},
			"active=1 failed=0 done=[0,2]"},
		{"by so many of the indexes", indexedJob(9, 1, withPolicy(batchv1.SuccessPolicyRule{SucceededIndexes: ptr("0,2-3"), SucceededCount: ptr(int32(2))})), batchv1.JobStatus{CompletedIndexes: "0,2"}, nil,
			"active=0 failed=0 done=[0,2] SuccessCriteriaMet=True/SuccessPolicy Complete=True/SuccessPolicy"},
		{"the second rule is as good", indexedJob(9, 1, withPolicy(batchv1.SuccessPolicyRule{SucceededIndexes: ptr("0")}, batchv1.SuccessPolicyRule{SucceededIndexes: ptr("1")})), batchv1.JobStatus{CompletedIndexes: "1"}, nil,
			"active=0 failed=0 done=[1] SuccessCriteriaMet=True/SuccessPolicy Complete=True/SuccessPolicy"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.job.Status = c.status
			if got := told(decide(observed{job: c.job, pods: c.pods}, noon)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A set of indexes behaves as a set of numbers, and its text is read back.
func TestIndexesAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) []int { return rapid.SliceOfN(rapid.IntRange(0, 40), 0, 30).Draw(t, name) }
		a, b := draw("a"), draw("b")
		set := func(of ...[]int) []int {
			all := slices.Concat(of...)
			slices.Sort(all)
			return slices.Compact(all)
		}
		ia, ib := indexes(nil).with(a...), indexes(nil).with(b...)
		if got := parseIndexes(ia.String(), 41); !slices.Equal(got, ia) {
			t.Fatalf("%q is read as %v, not %v", ia, got, ia)
		}
		if want := set(a, b); !slices.Equal(ia.union(ib), indexes(nil).with(want...)) || ia.union(ib).total() != len(want) {
			t.Fatalf("union %v", ia.union(ib))
		}
		common, gaps := 0, []int(nil)
		for i := range 41 {
			if ia.has(i) != slices.Contains(a, i) {
				t.Fatalf("has(%d) of %v", i, ia)
			}
			if ia.has(i) && ib.has(i) {
				common++
			}
			if !ia.has(i) {
				gaps = append(gaps, i)
			}
		}
		if ia.common(ib) != common || !slices.Equal(slices.Collect(ia.gaps(41)), gaps) {
			t.Fatalf("common %d, want %d; gaps %v, want %v", ia.common(ib), common, slices.Collect(ia.gaps(41)), gaps)
		}
		below := rapid.IntRange(0, 41).Draw(t, "below")
		if got, want := parseIndexes(ia.String(), below).total(), len(slices.DeleteFunc(set(a), func(i int) bool { return i >= below })); got != want {
			t.Fatalf("%d of %v below %d, want %d", got, ia, below, want)
		}
	})
}

func TestIndexesAsText(t *testing.T) {
	for text, want := range map[string]string{"": "", "1": "1", "1,2": "1,2", "1,2,3": "1-3", "0-2,3,7,8": "0-3,7,8", "5,x,-,3-1,2": "2,5", "8-99": "8,9"} {
		if got := parseIndexes(text, 10).String(); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// What a pod of an index is given.
func TestAPodOfAnIndex(t *testing.T) {
	job := indexedJob(12, 1, perIndexLimit(3), func(s *batchv1.JobSpec) {
		s.Template.Spec.Containers = append(s.Template.Spec.Containers, corev1.Container{Name: "own", Image: "i", Env: []corev1.EnvVar{{Name: indexVariable, Value: "mine"}}})
	})
	job.Name = strings.Repeat("j", 60)
	m, err := model(job, admission.Facts{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}})
	if err != nil {
		t.Fatal(err)
	}
	p := copyOf(m, job, step{verb: createPod, index: 11, failures: 2, ignored: 1}, 7, noon)
	const key = "batch.kubernetes.io/job-completion-index"
	if p.Labels[key] != "11" || p.Annotations[key] != "11" || p.Spec.Hostname != job.Name+"-11" {
		t.Errorf("labels %v, annotations %v, host name %q", p.Labels, p.Annotations, p.Spec.Hostname)
	}
	if p.Annotations[batchv1.JobIndexFailureCountAnnotation] != "2" || p.Annotations[batchv1.JobIndexIgnoredFailureCountAnnotation] != "1" {
		t.Errorf("annotations %v", p.Annotations)
	}
	if len(p.Name) != 63 || !strings.Contains(p.Name, "j-11-") || !tracked(p) {
		t.Errorf("name %q, finalizers %v", p.Name, p.Finalizers)
	}
	env := p.Spec.Containers[0].Env
	if len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" || env[0].ValueFrom.FieldRef.FieldPath != "metadata.labels['"+key+"']" {
		t.Errorf("variables %+v", env)
	}
	if own := p.Spec.Containers[1].Env; len(own) != 1 || own[0].Value != "mine" {
		t.Errorf("a container's own variable became %+v", own)
	}
	if m.Spec.Hostname != "" || m.Annotations[key] != "" || m.Name != "" {
		t.Errorf("the model changed: %+v", m.ObjectMeta)
	}
}
