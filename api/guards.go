package api

import "k8s.io/apimachinery/pkg/runtime/schema"

// The resources of the kinds that bound what others may do.
func PodDisruptionBudgets() schema.GroupResource { return gr("policy", "poddisruptionbudgets") }
func LimitRanges() schema.GroupResource          { return gr("", "limitranges") }
func ResourceQuotas() schema.GroupResource       { return gr("", "resourcequotas") }

// Charged is one write that a ResourceQuota may count: an object that is made, or
// changed from Old.
type Charged struct{ Object, Old Object }
