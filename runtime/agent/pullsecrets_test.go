package agent

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod pulls with what its secrets hold; what is wrong with one of them is told
// without its value, and the others count.
func TestR14_PullSecrets(t *testing.T) {
	objects := newThings()
	put := func(name string, kind corev1.SecretType, key, text string) {
		objects.secrets["shop/"+name] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: kind, Data: map[string][]byte{key: []byte(text)}}
	}
	put("new", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{"a.example":{"auth":"YTpi"}}}`)
	put("old", corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"b.example":{"auth":"YTpi"}}`)
	put("torn", corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, `{"auths":{"c.example":{"auth":"geheim`)
	put("opaque", corev1.SecretTypeOpaque, "password", "geheim")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for _, name := range []string{"new", "old", "torn", "opaque", "none"} {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	ring, missing := keyring(pod, objects)
	if len(ring) != 2 || ring[0].Registry != "b.example" || ring[1].Registry != "a.example" {
		t.Errorf("%v", ring)
	}
	want := "torn: key .dockerconfigjson: it is not the JSON of Docker's configuration\n" +
		"opaque: type \"Opaque\": a pull secret has the type kubernetes.io/dockerconfigjson and the key .dockerconfigjson\n" +
		"none: not found"
	if got := strings.Join(missing, "\n"); got != want {
		t.Errorf("%s", got)
	}
}
