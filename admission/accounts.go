package admission

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	defaultAccount = "default" // which every namespace has
	tokenVolume    = "kube-api-access-"
	tokenPath      = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenSeconds   = int64(3607) // Kubernetes': an hour, and told from an hour that somebody chose
)

// useAccount gives a new pod what its ServiceAccount says: secrets to pull with, if the
// pod names none, and a volume with credentials of the API, unless one of the two does
// not want it. out is changed.
func useAccount(out *corev1.Pod, f Facts) error {
	if out.Spec.ServiceAccountName == "" {
		out.Spec.ServiceAccountName = defaultAccount
	}
	out.Spec.DeprecatedServiceAccount = out.Spec.ServiceAccountName
	account, err := f.accountOf(out)
	if err != nil {
		return err
	}
	if automounts(out, account) {
		mountToken(out)
	}
	if len(out.Spec.ImagePullSecrets) == 0 {
		out.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	if err := limitSecrets(out, account); err != nil {
		return apierrors.NewForbidden(api.Pods(), out.Name, err)
	}
	return nil
}

// accountOf is what a pod runs as; that it must be there is the error.
func (f Facts) accountOf(pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	name := pod.Spec.ServiceAccountName
	if account := f.account(pod.Namespace, name); account != nil {
		return account, nil
	}
	return nil, apierrors.NewForbidden(api.Pods(), pod.Name, fmt.Errorf("error looking up service account %s/%s: serviceaccount %q not found", pod.Namespace, name, name))
}

// account finds a ServiceAccount; nil when there is none. The default one is there even
// while the cluster is still making it.
func (f Facts) account(namespace, name string) *corev1.ServiceAccount {
	for _, obj := range f.Accounts {
		if a, ok := obj.(*corev1.ServiceAccount); ok && a.Name == name && a.Namespace == namespace {
			return a
		}
	}
	if name == defaultAccount {
		return &corev1.ServiceAccount{}
	}
	return nil
}

// automounts says whether a pod gets credentials: the pod's word goes before its
// account's.
func automounts(pod *corev1.Pod, account *corev1.ServiceAccount) bool {
	switch {
	case pod.Spec.AutomountServiceAccountToken != nil:
		return *pod.Spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	}
	return true
}

// mountToken adds the volume with the credentials, and mounts it into every container
// that has nothing in its place.
func mountToken(pod *corev1.Pod) {
	name, there := tokenVolumeOf(pod)
	needed := false
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath }) {
				continue
			}
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenPath})
			needed = true
		}
	}
	if there || !needed {
		return
	}
	mode, seconds := int32(0o644), tokenSeconds
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}}})
}

// tokenVolumeOf is the name of a pod's volume with the credentials, and whether the pod
// has it already. It ends like those that Kubernetes makes, but is the same for all pods
// of an account, so that those of one template are equal.
func tokenVolumeOf(pod *corev1.Pod) (name string, there bool) {
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, tokenVolume) {
			return v.Name, true
		}
	}
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	h := fnv.New64a()
	_, _ = h.Write([]byte(pod.Namespace + "/" + pod.Spec.ServiceAccountName)) // never fails
	sum, suffix := h.Sum64(), make([]byte, 5)
	for i := range suffix {
		suffix[i] = letters[sum%uint64(len(letters))]
		sum /= uint64(len(letters))
	}
	return tokenVolume + string(suffix), false
}
