package syncer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/podset"
	"headway.dev/headway/store"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// State is how a declared object is doing.
type State string

const (
	Healthy     State = "Healthy"
	Progressing State = "Progressing"
	Failed      State = "Failed"  // it will not get better by waiting
	Missing     State = "Missing" // declared and not there
)

// Health says how an object is doing and why, from what the controllers and
// agents have written on it and on what it owns.
func Health(obj api.Object, r store.Reader) (State, string) {
	if obj == nil {
		return Missing, "does not exist"
	}
	if obj.GetDeletionTimestamp() != nil {
		return Progressing, "is being deleted"
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return deploymentHealth(o, r)
	case *appsv1.ReplicaSet:
		return replicaSetHealth(o, r)
	case *corev1.ReplicationController:
		return replicationHealth(o, r)
	case *appsv1.StatefulSet:
		return statefulSetHealth(o, r)
	case *appsv1.DaemonSet:
		return daemonSetHealth(o, r)
	case *batchv1.Job:
		return jobHealth(o, r)
	case *batchv1.CronJob:
		return cronJobHealth(o)
	case *corev1.Pod:
		return podHealth(o)
	case *corev1.Service:
		return serviceHealth(o)
	case *corev1.PersistentVolumeClaim:
		return claimHealth(o, r)
	case *corev1.PersistentVolume:
		return volumeHealth(o)
	}
	if storedOnly(store.KeyOf(obj)) {
		return Healthy, "stored, not enforced by this version"
	}
	return Healthy, ""
}

// storedOnly says whether nothing acts on an object, and people are told so.
func storedOnly(key store.Key) bool {
	k, ok := api.ResourceKind(key.GroupResource)
	return ok && k.Told
}

func deploymentHealth(d *appsv1.Deployment, r store.Reader) (State, string) {
	want := replicas(d.Spec.Replicas)
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == "ReplicaSetCreateError" {
			return Failed, c.Message
		}
	}
	if d.Status.ObservedGeneration < d.Generation {
		return Progressing, fmt.Sprintf("0/%d ready", want)
	}
	progress := fmt.Sprintf("%d/%d ready", min(d.Status.UpdatedReplicas, d.Status.AvailableReplicas, want), want)
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" {
			return Failed, withTrouble(progress+", no progress within the deadline", deploymentPods(d, r))
		}
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue && d.Status.UpdatedReplicas < want {
			return Failed, progress + ", " + c.Message
		}
	}
	switch {
	case d.Status.UpdatedReplicas < want || d.Status.AvailableReplicas < want:
		return troubled(progress, deploymentPods(d, r))
	case d.Status.Replicas > d.Status.UpdatedReplicas:
		return troubled(fmt.Sprintf("%s, %d old to stop", progress, d.Status.Replicas-d.Status.UpdatedReplicas), deploymentPods(d, r))
	}
	if rs := newestSet(d, r); rs != nil && !d.Spec.Paused && !podset.SameRefs(podset.RecordedRefs(rs), podset.Refs(r, d.Namespace, &d.Spec.Template)) {
		// A commit changed a ConfigMap or a Secret that it reads (D13): the rollout
		// is about to begin.
		return Progressing, progress + ", of the settings before"
	}
	return Healthy, progress
}

func replicaSetHealth(rs *appsv1.ReplicaSet, r store.Reader) (State, string) {
	s := rs.Status
	return replicasHealth(rs, replicas(rs.Spec.Replicas), s.Replicas, s.AvailableReplicas, s.ObservedGeneration, r)
}

func replicationHealth(rc *corev1.ReplicationController, r store.Reader) (State, string) {
	s := rc.Status
	return replicasHealth(rc, replicas(rc.Spec.Replicas), s.Replicas, s.AvailableReplicas, s.ObservedGeneration, r)
}

// replicasHealth is the health of what has so many pods of one template.
func replicasHealth(obj api.Object, want, have, available int32, observed int64, r store.Reader) (State, string) {
	progress := fmt.Sprintf("%d/%d ready", min(available, want), want)
	switch {
	case observed < obj.GetGeneration():
		return Progressing, fmt.Sprintf("0/%d ready", want)
	case available < want:
		return troubled(progress, pods(r.Owned(obj.GetUID())))
	case have > want:
		return Progressing, fmt.Sprintf("%s, %d to stop", progress, have-want)
	}
	return Healthy, progress
}

func jobHealth(job *batchv1.Job, r store.Reader) (State, string) {
	if c := finished(job); c != nil {
		if c.Type == batchv1.JobComplete {
			return Healthy, "complete"
		}
		return Failed, join("failed", c.Reason, c.Message)
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return Healthy, "suspended"
	}
	want := int32(1)
	if job.Spec.Completions != nil {
		want = *job.Spec.Completions
	} else if job.Spec.Parallelism != nil {
		want = *job.Spec.Parallelism
	}
	return troubled(fmt.Sprintf("%d/%d succeeded", job.Status.Succeeded, want), pods(r.Owned(job.UID)))
}

func cronJobHealth(c *batchv1.CronJob) (State, string) {
	switch {
	case c.Spec.Suspend != nil && *c.Spec.Suspend:
		return Healthy, "suspended"
	case c.Status.LastScheduleTime != nil:
		return Healthy, "last run " + c.Status.LastScheduleTime.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return Healthy, "scheduled " + c.Spec.Schedule
}

func podHealth(p *corev1.Pod) (State, string) {
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return Healthy, "succeeded"
	case corev1.PodFailed:
		return Failed, join("failed", p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return Healthy, "ready"
		}
	}
	progress := "starting"
	if p.Spec.NodeName == "" {
		progress = "waiting for a node"
	}
	return troubled(progress, []*corev1.Pod{p})
}

// serviceHealth waits only for the addresses of a load balancer: whether anything
// answers behind a Service is told by its pods.
func serviceHealth(s *corev1.Service) (State, string) {
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return Healthy, ""
	}
	var at []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		at = append(at, ingress.IP)
	}
	switch c := meta.FindStatusCondition(s.Status.Conditions, corev1.LoadBalancerPortsError); {
	case c != nil && c.Status == metav1.ConditionTrue:
		return Failed, c.Message
	case len(at) > 0:
		return Healthy, "at " + strings.Join(at, ", ")
	case s.Spec.LoadBalancerIP != "":
		return Progressing, "waiting for a ready node with the address " + s.Spec.LoadBalancerIP
	}
	return Progressing, "waiting for a ready node"
}

// troubled is Progressing, with what is wrong with the first pod in trouble, or
// Failed when that does not pass by itself.
func troubled(progress string, pods []*corev1.Pod) (State, string) {
	state := Progressing
	worst := ""
	for _, p := range pods {
		s, text := trouble(p)
		if text != "" && (worst == "" || s == Failed && state != Failed) {
			state, worst = s, text
		}
	}
	return state, join(progress, worst)
}

func withTrouble(progress string, pods []*corev1.Pod) string {
	_, text := troubled(progress, pods)
	return text
}

// Restarts after which a crash loop is taken as a failure and no longer as a
// start that waits for something.
const crashes = 3

// trouble says what keeps a pod from being ready, when that is known.
func trouble(p *corev1.Pod) (State, string) {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return Progressing, "pod " + p.Name + ": " + c.Message
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		at := "container " + c.Name + " of pod " + p.Name
		switch w.Reason {
		case "", "ContainerCreating", "PodInitializing":
			continue
		case "CrashLoopBackOff":
			text := at + " crashes"
			if t := c.LastTerminationState.Terminated; t != nil {
				text = fmt.Sprintf("%s: exit code %d", text, t.ExitCode)
			}
			if c.RestartCount >= crashes {
				return Failed, fmt.Sprintf("%s, %d restarts", text, c.RestartCount)
			}
			return Progressing, text
		case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return Failed, join(at, w.Reason, w.Message)
		}
		return Progressing, join(at, w.Reason, w.Message)
	}
	return Progressing, unready(p)
}

// unready says which container that runs is not ready, because its probes say so.
func unready(p *corev1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		probes := probesOf(p, c.Name)
		switch at := "container " + c.Name + " of pod " + p.Name; {
		case c.State.Running == nil || probes == nil:
		case c.Started != nil && !*c.Started && probes.StartupProbe != nil:
			return at + " runs, and its startup probe has not succeeded yet"
		case !c.Ready && probes.ReadinessProbe != nil:
			return at + " runs, and its readiness probe has not succeeded"
		}
	}
	return ""
}

func probesOf(p *corev1.Pod, container string) *corev1.Container {
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// deploymentPods are the pods of the newest ReplicaSet.
func deploymentPods(d *appsv1.Deployment, r store.Reader) []*corev1.Pod {
	newest := newestSet(d, r)
	if newest == nil {
		return nil
	}
	return pods(r.Owned(newest.UID))
}

// newestSet is the ReplicaSet of the highest revision; nil when there is none.
func newestSet(d *appsv1.Deployment, r store.Reader) *appsv1.ReplicaSet {
	var newest *appsv1.ReplicaSet
	best := -1
	for _, o := range r.Owned(d.UID) {
		rs, ok := o.(*appsv1.ReplicaSet)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(rs.Annotations["deployment.kubernetes.io/revision"])
		if err != nil {
			n = 0
		}
		if n > best {
			best, newest = n, rs
		}
	}
	return newest
}

func pods(owned []api.Object) []*corev1.Pod {
	var out []*corev1.Pod
	for _, o := range owned {
		if p, ok := o.(*corev1.Pod); ok && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

// join puts what is not empty behind one another.
func join(parts ...string) string {
	out := ""
	for _, p := range parts {
		switch {
		case p == "":
		case out == "":
			out = p
		default:
			out += ": " + p
		}
	}
	return out
}
