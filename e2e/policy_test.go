package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// job is a Job of the probe; more goes into its spec, indented by two.
func job(name, more string, args ...string) string {
	if more != "" {
		more = "  " + strings.ReplaceAll(more, "\n", "\n  ") + "\n"
	}
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	policy := "Never"
	if strings.Contains(name, "onfailure") {
		policy = "OnFailure"
	}
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata:
  name: %s
spec:
%s  template:
    spec:
      restartPolicy: %s
      containers:
        - name: main
          image: %s
          args: [%s]
`, name, more, policy, probeName, strings.Join(quoted, ", "))
}

// A container that exits shows what Kubernetes shows: the back-off, the count,
// the exit code; Jobs with each restart policy end as they must, and the push
// says which failed.
func TestRestartPolicies(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.write(map[string]string{
		"crash.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: crash}\nspec:\n  containers:\n    - {name: main, image: " + probeName + `, args: [exit, "7"]}` + "\n",
		"never.yaml": job("never", "backoffLimit: 1", "exit", "3"),
		"onf.yaml":   job("onfailure", "backoffLimit: 1", "exit", "4"),
		"three.yaml": job("three", "completions: 3\nparallelism: 2", "exit", "0"),
		"index.yaml": job("indexed", "completionMode: Indexed\ncompletions: 3\nparallelism: 2", "env"),
		"rule.yaml":  job("ruled", "backoffLimit: 6\npodFailurePolicy:\n  rules:\n    - {action: FailJob, onExitCodes: {operator: In, values: [42]}}", "exit", "42"),
		"old.yaml":   "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: old}\nspec:\n  replicas: 2\n  template:\n    metadata: {labels: {app: old}}\n    spec:\n      containers:\n        - {name: main, image: " + probeName + ", args: [sleep]}\n",
	})
	c.commit("they fail")
	pushed := c.hold()

	client, ctx := c.client(), context.Background()
	eventually(t, "the crash loop to show", func() error {
		p, err := client.CoreV1().Pods("default").Get(ctx, "crash", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(p.Status.ContainerStatuses) != 1 {
			return fmt.Errorf("no container status")
		}
		s := p.Status.ContainerStatuses[0]
		switch last := s.LastTerminationState.Terminated; {
		case s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff":
			return fmt.Errorf("state %+v", s.State)
		case s.RestartCount < 1:
			return fmt.Errorf("%d restarts", s.RestartCount)
		case last == nil || last.ExitCode != 7 || last.Reason != "Error":
			return fmt.Errorf("last state %+v", last)
		case p.Status.Phase != corev1.PodRunning:
			return fmt.Errorf("phase %s", p.Status.Phase)
		}
		return nil
	})
	contains(t, "kubectl get pod", c.kubectl("get", "pod", "crash"), "CrashLoopBackOff")

	ended := func(name string) *batchv1.Job {
		var j *batchv1.Job
		eventually(t, "job "+name+" to end", func() error {
			var err error
			if j, err = client.BatchV1().Jobs("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
			for _, cond := range j.Status.Conditions {
				if (cond.Type == batchv1.JobComplete || cond.Type == batchv1.JobFailed) && cond.Status == corev1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("status %+v", j.Status)
		})
		return j
	}
	if j := ended("three"); j.Status.Succeeded != 3 || j.Status.Failed != 0 {
		t.Errorf("job three: %+v", j.Status)
	}
	if j := ended("never"); j.Status.Failed != 2 || !failedFor(j, "BackoffLimitExceeded") {
		t.Errorf("job never: %+v", j.Status)
	}
	for _, p := range c.pods("batch.kubernetes.io/job-name=never") {
		if s := p.Status.ContainerStatuses; p.Status.Phase != corev1.PodFailed || s[0].State.Terminated == nil || s[0].State.Terminated.ExitCode != 3 || s[0].RestartCount != 0 {
			t.Errorf("pod %s: %+v", p.Name, p.Status)
		}
	}
	if j := ended("onfailure"); !failedFor(j, "BackoffLimitExceeded") {
		t.Errorf("job onfailure: %+v", j.Status)
	}
	if j := ended("indexed"); j.Status.Succeeded != 3 || j.Status.CompletedIndexes != "0-2" {
		t.Errorf("job indexed: %+v", j.Status)
	}
	for _, p := range c.pods("batch.kubernetes.io/job-name=indexed") {
		index := p.Labels[batchv1.JobCompletionIndexAnnotation]
		contains(t, "the log of "+p.Name, c.kubectl("logs", p.Name), "JOB_COMPLETION_INDEX="+index+"\n", "HOSTNAME=indexed-"+index+"\n")
	}
	if j := ended("ruled"); j.Status.Failed != 1 || !failedFor(j, batchv1.JobReasonPodFailurePolicy) {
		t.Errorf("job ruled: %+v", j.Status)
	}

	// A ReplicationController replaces a pod that goes, and scales.
	running := func(n int) []corev1.Pod {
		var pods []corev1.Pod
		eventually(t, fmt.Sprintf("%d pods of the controller to be ready", n), func() error {
			rc, err := client.CoreV1().ReplicationControllers("default").Get(ctx, "old", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if pods = c.pods("app=old"); len(pods) != n || int(rc.Status.ReadyReplicas) != n || int(rc.Status.Replicas) != n {
				return fmt.Errorf("%d pods, status %+v", len(pods), rc.Status)
			}
			return nil
		})
		return pods
	}
	c.kubectl("delete", "pod", running(2)[0].Name, "--grace-period=1")
	running(2)

	// The push says so, and the fix goes through whatever is failing.
	c.deploy("mended\n\nAllow-Delete: 5", map[string]string{"crash.yaml": "", "never.yaml": "", "onf.yaml": "", "rule.yaml": "", "old.yaml": ""})
	eventually(t, "the controller's pods to go with it", func() error {
		if pods := c.pods("app=old"); len(pods) > 0 {
			return fmt.Errorf("%d pods", len(pods))
		}
		return nil
	})
	contains(t, "the push", pushed(), "Job default/never  failed:", "Job default/onfailure  failed:", "Job default/three  healthy", "failed after")
}

func failedFor(j *batchv1.Job, reason string) bool {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			return c.Reason == reason
		}
	}
	return false
}
