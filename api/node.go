package api

import corev1 "k8s.io/api/core/v1"

// ForeignContainers is the condition of a node that runs containers which belong to
// no pod, where Headway makes those of pods.
const ForeignContainers corev1.NodeConditionType = "headway.dev/ForeignContainers"
