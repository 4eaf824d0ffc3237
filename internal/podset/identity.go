package podset

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Identity says whether the pod's name is an identity, which may not run twice (R10):
// a StatefulSet controls it, or did and left it the label of its name when it went
// without its pods.
func Identity(pod *corev1.Pod) bool {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.Kind == "StatefulSet" && ref.APIVersion == appsv1.SchemeGroupVersion.String()
	}
	return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name
}

// MayRun says whether a node may still run the pod. Of one that is being deleted a
// grace of zero says that its agent has reported it stopped, or that the operator has
// declared the node gone: whoever takes the last finalizer off lets it go then.
func MayRun(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || Ended(pod) {
		return false
	}
	return pod.DeletionTimestamp == nil || pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds != 0
}

// LeastGrace is the shortest grace of a pod whose agent has to be heard.
const LeastGrace int64 = 1
