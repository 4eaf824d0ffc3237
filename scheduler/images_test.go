package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

func TestFamiliarNames(t *testing.T) {
	for name, want := range map[string]string{
		"nginx":                             "nginx:latest",
		"nginx:1":                           "nginx:1",
		"docker.io/library/nginx":           "nginx:latest",
		"index.docker.io/library/nginx:1":   "nginx:1",
		"docker.io/team/app:2":              "team/app:2",
		"registry.example:5000/library/app": "registry.example:5000/library/app:latest",
		"docker.io/library/nginx@sha256:0f": "nginx@sha256:0f",
		"headway.local/hello:1":             "headway.local/hello:1",
	} {
		if got := familiar(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// The part of the score is Kubernetes' own: between 23 MiB and 1,000 MiB for each
// container.
func TestLocality(t *testing.T) {
	for _, c := range []struct {
		stock      int64
		containers int
		want       int64
	}{{0, 1, 0}, {23 << 20, 1, 0}, {511 << 20, 1, 49}, {1000 << 20, 1, 100}, {5000 << 20, 1, 100}, {1000 << 20, 2, 49}, {2000 << 20, 2, 100}, {1 << 40, 0, 0}} {
		if got := locality(c.stock, c.containers); got != c.want {
			t.Errorf("%d bytes for %d containers: %d, want %d", c.stock, c.containers, got, c.want)
		}
	}
}

// However nodes come, change and go, what is noted of their images is what they have.
func TestImagesAreNotedAsTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBoard()
		live := map[string]map[string]int64{}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			name := fmt.Sprintf("n%d", rapid.IntRange(0, 4).Draw(t, "node"))
			if rapid.IntRange(0, 3).Draw(t, "goes") == 0 {
				b.dropNode(name)
				delete(live, name)
				continue
			}
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
			live[name] = map[string]int64{}
			for i := range 3 {
				if size := rapid.Int64Range(0, 3).Draw(t, "size"); size > 0 {
					image := fmt.Sprintf("i%d:1", i)
					live[name][image] = size
					node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: size})
				}
			}
			b.setNode(node, true)
		}
		want := map[string][]int{}
		for name, images := range live {
			for image := range images {
				want[image] = append(want[image], b.slots[name])
			}
		}
		if len(b.images) != len(want) {
			t.Fatalf("images %v, want %v", slices.Sorted(maps.Keys(b.images)), want)
		}
		for image, slots := range want {
			slices.Sort(slots)
			if got := b.images[image]; got == nil || !slices.Equal(got.slots, slots) {
				t.Fatalf("%s is on %v, want %v", image, got, slots)
			}
		}
		mem := make([]int64, len(b.spots))
		for _, slot := range b.stocked([]string{"i0:1", "i1:1", "nothing:1"}, mem) {
			mem[slot] = 0
		}
		if slices.ContainsFunc(mem, func(n int64) bool { return n != 0 }) {
			t.Fatal("a slot is not given back")
		}
	})
}
