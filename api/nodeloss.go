package api

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AnnotationNodeLoss is how a pod would ask to be stopped by a node that has lost the
// control plane, and so to be replaced without an operator's word (R10). This version
// does not do that, and a pod that relied on it would wait: it is refused by name (R12).
const AnnotationNodeLoss = "headway.dev/on-node-loss"

// nodeLoss finds that annotation on the object and on the templates in it.
func nodeLoss(declared map[string]any, at *field.Path) (errs field.ErrorList) {
	child := func(name string) *field.Path {
		if at == nil {
			return field.NewPath(name)
		}
		return at.Child(name)
	}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		inner, ok := declared[name].(map[string]any)
		if !ok {
			continue
		}
		if name == "metadata" {
			annotations, _ := inner["annotations"].(map[string]any)
			if _, set := annotations[AnnotationNodeLoss]; set {
				errs = append(errs, field.Forbidden(child(name).Child("annotations").Key(AnnotationNodeLoss),
					"not acted on in this version: a pod on a lost node is replaced when its agent has reported it stopped, or when the node is deleted or tainted node.kubernetes.io/out-of-service: remove it"))
			}
			continue
		}
		if name == "spec" || name == "template" || name == "jobTemplate" {
			errs = append(errs, nodeLoss(inner, child(name))...)
		}
	}
	return errs
}
