package server

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A claim gets the default class and both it and a volume are protected, as Kubernetes'
// admission has it; a claim grows only where its class lets it.
func TestVolumesAreAdmitted(t *testing.T) {
	f := start(t, 0, nil)
	client := f.adminHTTP()
	ask := func(method, path, body string, out any) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", "application/yaml")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		resp, err := client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		if out != nil && resp.StatusCode < 300 {
			must(t, json.Unmarshal(text, out))
		}
		now, err := f.store.Current(t.Context())
		must(t, err)
		must(t, f.store.WaitRevision(t.Context(), now))
		return resp.StatusCode, string(text)
	}
	const claims = "/api/v1/namespaces/default/persistentvolumeclaims"
	class := "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: slow, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}\nprovisioner: headway.dev/local\nvolumeBindingMode: WaitForFirstConsumer\n"
	if status, text := ask(http.MethodPost, "/apis/storage.k8s.io/v1/storageclasses", strings.Replace(class, "WaitForFirstConsumer", "Immediate", 1), nil); status != http.StatusUnprocessableEntity || !strings.Contains(text, "volumeBindingMode: Forbidden") {
		t.Errorf("an Immediate class: %d %s", status, text)
	}
	if status, text := ask(http.MethodPost, "/apis/storage.k8s.io/v1/storageclasses", class, nil); status != http.StatusCreated {
		t.Fatalf("class: %d %s", status, text)
	}
	var claim corev1.PersistentVolumeClaim
	if status, text := ask(http.MethodPost, claims, "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: 1Gi}}, accessModes: [ReadWriteOnce]}\n", &claim); status != http.StatusCreated {
		t.Fatalf("claim: %d %s", status, text)
	}
	if c := claim.Spec.StorageClassName; c == nil || *c != "slow" || !slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection") || claim.Status.Phase != corev1.ClaimPending {
		t.Errorf("claim %+v %+v", claim.ObjectMeta, claim.Spec)
	}
	var volume corev1.PersistentVolume
	if status, text := ask(http.MethodPost, "/api/v1/persistentvolumes", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: v}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /data}}\n", &volume); status != http.StatusCreated || !slices.Contains(volume.Finalizers, "kubernetes.io/pv-protection") {
		t.Errorf("volume: %d %s", status, text)
	}
	if status, text := ask(http.MethodPost, "/api/v1/persistentvolumes", "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: w}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: a.b, volumeHandle: c}}\n", nil); status != http.StatusUnprocessableEntity || !strings.Contains(text, "storage drivers are not run") {
		t.Errorf("a driver's volume: %d %s", status, text)
	}
	bound := `{"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}}`
	if status, text := ask(http.MethodPatch, claims+"/a", `{"spec": {"volumeName": "v"}}`, nil); status != http.StatusOK {
		t.Fatalf("bind: %d %s", status, text)
	}
	if status, text := ask(http.MethodPatch, claims+"/a/status", bound, nil); status != http.StatusOK {
		t.Fatalf("status: %d %s", status, text)
	}
	grow := `{"spec": {"resources": {"requests": {"storage": "2Gi"}}}}`
	if status, text := ask(http.MethodPatch, claims+"/a", grow, nil); status != http.StatusForbidden || !strings.Contains(text, "only dynamically provisioned pvc can be resized") {
		t.Errorf("a claim grows: %d %s", status, text)
	}
	if status, text := ask(http.MethodPatch, "/apis/storage.k8s.io/v1/storageclasses/slow", `{"allowVolumeExpansion": true}`, nil); status != http.StatusOK {
		t.Fatalf("class: %d %s", status, text)
	}
	if status, text := ask(http.MethodPatch, claims+"/a", grow, nil); status != http.StatusOK {
		t.Errorf("a claim does not grow: %d %s", status, text)
	}
}
