package session_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/session"
)

func TestNodeOf(t *testing.T) {
	name, err := session.NodeOf(&x509.Certificate{Subject: session.Subject("n1")})
	if err != nil || name != "n1" {
		t.Fatal(name, err)
	}
	for _, s := range []pkix.Name{
		{}, {CommonName: "system:node:n1"}, {CommonName: "n1", Organization: []string{"system:nodes"}},
		{CommonName: "system:node:", Organization: []string{"system:nodes"}}, {CommonName: "system:node:N/1", Organization: []string{"system:nodes"}},
		{CommonName: "admin", Organization: []string{"system:masters"}},
	} {
		if _, err := session.NodeOf(&x509.Certificate{Subject: s}); err == nil {
			t.Errorf("%v is taken for a node's", s)
		}
	}
}

func TestSettableLabel(t *testing.T) {
	for key, want := range map[string]bool{
		"team": true, "example.com/rack": true, "kubernetes.io/hostname": true, "beta.kubernetes.io/os": true, "beta.kubernetes.io/arch": true, "topology.kubernetes.io/zone": true,
		"node-restriction.kubernetes.io/x": false, "node-role.kubernetes.io/control-plane": false, "kubernetes.io/x": false, "k8s.io/x": false,
		"headway.dev/x": false, "a.headway.dev/x": false, "notkubernetes.io/x": true,
	} {
		if session.SettableLabel(key) != want {
			t.Errorf("%s: %v", key, !want)
		}
	}
}

func TestReferences(t *testing.T) {
	local := func(n string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: n} }
	c := corev1.Container{
		EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: local("c1")}}, {SecretRef: &corev1.SecretEnvSource{LocalObjectReference: local("s1")}}},
		Env: []corev1.EnvVar{
			{Name: "plain"},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: local("c2")}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: local("s1")}}},
		},
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{c}, Containers: []corev1.Container{c}, ImagePullSecrets: []corev1.LocalObjectReference{local("pull")},
		Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: local("c3")}}},
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s3"}}},
			{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: local("c4")}}, {Secret: &corev1.SecretProjection{LocalObjectReference: local("s4")}},
			}}}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}},
			{Name: "own", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
		},
	}}
	want := "[{configmaps c1} {configmaps c2} {configmaps c3} {configmaps c4} {persistentvolumeclaims claim} {persistentvolumeclaims p-own} {secrets pull} {secrets s1} {secrets s3} {secrets s4}]"
	if got := fmt.Sprint(session.References(pod)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
