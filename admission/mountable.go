package admission

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"headway.dev/headway/api"
)

// onlyMountable is Kubernetes' annotation of a ServiceAccount whose pods may use only the
// Secrets that it lists.
const onlyMountable = "kubernetes.io/enforce-mountable-secrets"

// limitDebugging holds the ephemeral containers that a pod gets against the Secrets that
// its account lists.
func limitDebugging(pod *corev1.Pod, f Facts) error {
	account, err := f.accountOf(pod)
	if err != nil {
		return err
	}
	debugging := &corev1.Pod{}
	for _, c := range pod.Spec.EphemeralContainers {
		debugging.Spec.Containers = append(debugging.Spec.Containers, corev1.Container(c.EphemeralContainerCommon))
	}
	if err := limitSecrets(debugging, account); err != nil {
		return apierrors.NewForbidden(api.Pods(), pod.Name, err)
	}
	return nil
}

// limitSecrets says which Secret a pod must not use, by its account's word.
func limitSecrets(pod *corev1.Pod, account *corev1.ServiceAccount) error {
	if on, err := strconv.ParseBool(account.Annotations[onlyMountable]); err != nil || !on {
		return nil // anything but a yes is none, as in Kubernetes
	}
	listed := func(name string) bool {
		return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == name })
	}
	refuse := func(what, name string) error {
		return fmt.Errorf("%s secret.secretName=%q is not allowed because service account %s does not reference that secret", what, name, account.Name)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !listed(v.Secret.SecretName) {
			return refuse("volume with", v.Secret.SecretName)
		}
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !listed(e.ValueFrom.SecretKeyRef.Name) {
					return refuse(fmt.Sprintf("container %s with envVar %s referencing", c.Name, e.Name), e.ValueFrom.SecretKeyRef.Name)
				}
			}
			for _, f := range c.EnvFrom {
				if f.SecretRef != nil && !listed(f.SecretRef.Name) {
					return refuse(fmt.Sprintf("container %s with envFrom referencing", c.Name), f.SecretRef.Name)
				}
			}
		}
	}
	for i, s := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, s) {
			return fmt.Errorf("imagePullSecrets[%d].name=%q is not allowed because service account %s does not reference that imagePullSecret", i, s.Name, account.Name)
		}
	}
	return nil
}
