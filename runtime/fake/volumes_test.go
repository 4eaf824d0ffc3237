package fake_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/volume"
)

// The fake's volumes keep what a disk keeps: data goes when it is discarded, which a pod
// that has it prevents.
func TestVolumes(t *testing.T) {
	ctx, v := t.Context(), fake.NewVolumes("/persistent")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	mine := []volume.Volume{{Name: "d", Kind: volume.Local, Persistent: "pv", ReadOnly: true}}
	must(v.Ensure(ctx, "a", mine))
	must(v.Ensure(ctx, "b", mine))
	mounts, err := v.Mounts(ctx, "a", &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d"}}}, nil)
	if err != nil || len(mounts) != 1 || !mounts[0].ReadOnly {
		t.Error(mounts, err)
	}
	if _, err := v.Mounts(ctx, "c", &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "d"}}}, nil); err == nil {
		t.Error("a pod without volumes mounts one")
	}
	if err := v.Discard(ctx, "pv"); err == nil {
		t.Error("discarded while pods have it")
	}
	v.Reboot()
	if kept, err := v.Kept(); err != nil || !slices.Equal(kept, []string{"pv"}) || !slices.Equal(v.Had("pv"), []types.UID{"a", "b"}) {
		t.Error(kept, v.Had("pv"), err)
	}
	must(v.Discard(ctx, "pv"))
	if left, err := v.Clear(ctx); err != nil || len(left) > 0 || v.Had("pv") != nil {
		t.Error(left, err)
	}
}
