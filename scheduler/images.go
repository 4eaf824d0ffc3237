package scheduler

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The sizes between which an image counts, as in Kubernetes: a smaller one is had in no
// time, and one container's counts up to the larger.
const (
	smallImage = 23 << 20
	largeImage = 1000 << 20
)

// imageState is an image and the nodes that have it.
type imageState struct {
	size  int64 // as the last node that told of it has it
	slots []int // sorted
}

// setImages notes which images a node has; node is nil when it is gone.
func (b *board) setImages(slot int, node *corev1.Node) {
	has := map[string]int64{}
	if node != nil {
		for _, image := range node.Status.Images {
			for _, name := range image.Names {
				has[familiar(name)] = image.SizeBytes
			}
		}
	}
	for _, name := range b.had[slot] {
		if _, still := has[name]; still {
			continue
		}
		s := b.images[name]
		if i, found := slices.BinarySearch(s.slots, slot); found {
			s.slots = slices.Delete(s.slots, i, i+1)
		}
		if len(s.slots) == 0 {
			delete(b.images, name)
		}
	}
	names := slices.Sorted(maps.Keys(has))
	for _, name := range names {
		s := b.images[name]
		if s == nil {
			s = &imageState{}
			b.images[name] = s
		}
		s.size = has[name]
		if i, found := slices.BinarySearch(s.slots, slot); !found {
			s.slots = slices.Insert(s.slots, i, slot)
		}
	}
	if len(names) == 0 {
		delete(b.had, slot)
		return
	}
	b.had[slot] = names
}

// imagesOf are the images of a pod's containers, one for each of them.
func imagesOf(pod *corev1.Pod) []string {
	var out []string
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, familiar(list[i].Image))
		}
	}
	return out
}

// familiar is the name that is the same for all spellings of one: without the registry
// that is meant when there is none, and with the tag that is meant when there is none.
func familiar(name string) string {
	for _, hub := range []string{"docker.io/", "index.docker.io/"} {
		if rest, ok := strings.CutPrefix(name, hub); ok {
			name = strings.TrimPrefix(rest, "library/")
			break
		}
	}
	if !strings.Contains(name, "@") && strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		name += ":latest"
	}
	return name
}

// stocked adds up, by slot, how much of what the pod's containers need each node has:
// the images' sizes, each less the fewer nodes have it, so that not all pods of an
// image go to the one node that has it. It returns the slots that have any.
func (b *board) stocked(images []string, into []int64) (touched []int) {
	nodes := int64(len(b.slots))
	for _, name := range images {
		s := b.images[name]
		if s == nil || nodes == 0 {
			continue
		}
		scaled := s.size * int64(len(s.slots)) / nodes
		for _, slot := range s.slots {
			into[slot] += scaled
		}
		touched = append(touched, s.slots...)
	}
	return touched
}

// locality is high for a node that has what a pod of so many containers needs.
func locality(stock int64, containers int) int64 {
	most := int64(containers) * largeImage
	if most <= smallImage {
		return 0
	}
	return 100 * (min(max(stock, smallImage), most) - smallImage) / (most - smallImage)
}

// equalImages says whether two nodes have the same images.
func equalImages(a, b *corev1.Node) bool {
	return slices.EqualFunc(a.Status.Images, b.Status.Images, func(x, y corev1.ContainerImage) bool {
		return x.SizeBytes == y.SizeBytes && slices.Equal(x.Names, y.Names)
	})
}
