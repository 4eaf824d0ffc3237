package agent

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// What a Node shows of the images that are there, as in Kubernetes: the largest, with
// a few of their names each.
const maxImages, maxImageNames = 50, 5

// PresentImage is an image that needs no pull.
type PresentImage struct {
	ID    string   // of the engine
	Names []string // canonical references, and repository@digest
	Size  int64    // bytes that a pull of it fetches
	Kept  bool     // it is never removed to free space: a registry could not give it again
}

// largest are the images that the Node shows, in an order that does not change.
func largest(found []PresentImage) []corev1.ContainerImage {
	var out []corev1.ContainerImage
	for _, i := range found {
		names := slices.Clone(i.Names)
		slices.Sort(names)
		if names = slices.Compact(names); len(names) > 0 {
			out = append(out, corev1.ContainerImage{Names: names[:min(len(names), maxImageNames)], SizeBytes: i.Size})
		}
	}
	slices.SortFunc(out, func(a, b corev1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), cmp.Compare(a.Names[0], b.Names[0]))
	})
	return out[:min(len(out), maxImages)]
}

// stock asks the engine which images there are, and sends the Node when that is not
// what it shows. Nothing but the choice of nodes for new pods depends on it: when the
// engine cannot say, the Node shows what it did, and the next look makes up for it.
func (a *Agent) stock(ctx context.Context) {
	found, err := a.cfg.Runtime.Images(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("the images of this node cannot be listed", "error", err)
		}
		return
	}
	images := largest(found)
	a.mu.Lock()
	defer a.mu.Unlock()
	if equality.Semantic.DeepEqual(images, a.node.Status.Images) {
		return
	}
	node := a.node.DeepCopy()
	node.Status.Images = images
	a.node, a.out.node = node, node
	notify(a.send)
}
