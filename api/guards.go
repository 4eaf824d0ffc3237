package api

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The resources of the kinds that bound what others may do.
func PodDisruptionBudgets() schema.GroupResource { return gr("policy", "poddisruptionbudgets") }
func LimitRanges() schema.GroupResource          { return gr("", "limitranges") }
func ResourceQuotas() schema.GroupResource       { return gr("", "resourcequotas") }

// Charged is one write that a ResourceQuota may count: an object that is made, or
// changed from Old.
type Charged struct{ Object, Old Object }

// amounts are the rows of lists of resources that may name any.
func amounts(prefix string, lists ...string) (out []FieldRule) {
	for _, list := range lists {
		out = append(out, acted(prefix+list, ".cpu .memory .ephemeral-storage ."+extendedResource+" ."+hugePages+" {}")...)
	}
	return out
}

// uncounted lists what a quota bounds and nothing counts, so that the bound would
// say nothing.
func uncounted(q *corev1.ResourceQuota) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(q.Spec.Hard)) {
		of := string(name)
		why := ""
		switch {
		case !strings.Contains(of, "/"), strings.HasPrefix(of, "count/"), strings.HasPrefix(of, "requests."), strings.Contains(of, ".storageclass.storage.k8s.io/"):
			continue
		case strings.Contains(of, ".deviceclass.resource.k8s.io/"):
			why = "there are no claims of devices"
		case strings.Contains(of, ".volumeattributesclass.storage.k8s.io/"):
			why = "claims have no attribute classes"
		default:
			why = "of such a resource requests." + strings.TrimPrefix(of, "limits.") + " is counted"
		}
		errs = append(errs, field.Forbidden(field.NewPath("spec", "hard").Key(of), "not supported by this version of Headway: "+why))
	}
	return errs
}
