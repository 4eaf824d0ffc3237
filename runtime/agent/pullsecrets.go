package agent

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/image"
)

// keyring is what a pod's images are pulled with. A pull secret that is not there,
// or holds nothing to pull with, keeps no image away: it may need none. missing says
// what is wrong with which, without a value (R14).
func keyring(pod *corev1.Pod, objects things) (ring image.Keyring, missing []string) {
	var rings []image.Keyring
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret := objects.secret(pod.Namespace, ref.Name)
		if secret == nil {
			missing = append(missing, ref.Name+": not found")
			continue
		}
		one, err := secretKeys(secret)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s: %v", ref.Name, err))
			continue
		}
		rings = append(rings, one)
	}
	return image.Join(rings...), missing
}

func secretKeys(s *corev1.Secret) (image.Keyring, error) {
	key, old := corev1.DockerConfigJsonKey, false
	if s.Type == corev1.SecretTypeDockercfg {
		key, old = corev1.DockerConfigKey, true
	}
	text, ok := s.Data[key]
	if !ok || s.Type != corev1.SecretTypeDockerConfigJson && s.Type != corev1.SecretTypeDockercfg {
		return nil, fmt.Errorf("type %q: a pull secret has the type %s and the key %s", s.Type, corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey)
	}
	ring, err := image.ParseKeyring(text, old)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", key, err)
	}
	return ring, nil
}
