package agent

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The figures of the machine that runs this.
func TestReadHost(t *testing.T) {
	dir := t.TempDir()
	h, err := ReadHost(dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []Signal{MemoryAvailable, DiskAvailable, ImageAvailable, PIDAvailable} {
		if l, ok := h[s]; !ok || l.Free <= 0 || l.Free > l.All {
			t.Errorf("%s: %+v", s, l)
		}
	}
	if less, err := ReadHost(dir, ""); err != nil || less[ImageAvailable] != (Level{}) || less[DiskAvailable] == (Level{}) {
		t.Errorf("without images: %v, %v", less, err)
	}
	if _, err := ReadHost(filepath.Join(dir, "none"), ""); err == nil {
		t.Error("a folder that is not there has room")
	}
	if busy, err := Busy(); err != nil || busy <= 0 {
		t.Errorf("CPU time %s, %v", busy, err)
	}
	node, err := Facts(FactsConfig{Name: "n1", Disk: dir, Reserved: corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Mi")}})
	if err != nil {
		t.Fatal(err)
	}
	all, free := node.Status.Capacity.StorageEphemeral().Value(), node.Status.Allocatable.StorageEphemeral().Value()
	if all != h[DiskAvailable].All || free != all-1<<20 {
		t.Errorf("ephemeral-storage %d of %d", free, all)
	}
}

func TestHugePages(t *testing.T) {
	dir := t.TempDir()
	for name, count := range map[string]string{"hugepages-2048kB": "512\n", "hugepages-1048576kB": "0\n"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "nr_hugepages"), []byte(count), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := hugePages(dir)
	if err != nil {
		t.Fatal(err)
	}
	two, one := got["hugepages-2Mi"], got["hugepages-1Gi"]
	if len(got) != 2 || two.String() != "1Gi" || !one.IsZero() {
		t.Errorf("%v", got)
	}
	if none, err := hugePages(filepath.Join(dir, "none")); err != nil || len(none) != 0 {
		t.Errorf("a machine that has none: %v, %v", none, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hugepages-2048kB", "nr_hugepages"), []byte("many"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := hugePages(dir); err == nil {
		t.Error("what cannot be read counts as nothing")
	}
}
