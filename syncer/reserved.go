package syncer

import (
	"headway.dev/headway/api"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkReserved refuses what a controller of the cluster makes under a name of its own:
// the two would put it back against each other for ever.
func checkReserved(c *scene, f *findings) {
	for _, m := range c.changed {
		key := keyOf(m)
		made := false
		switch key.GroupResource {
		case api.Services(), api.Endpoints(), api.EndpointSlices():
			made = key.Namespace == metav1.NamespaceDefault && key.Name == "kubernetes"
		case api.ConfigMaps():
			made = key.Name == "kube-root-ca.crt"
		}
		if made {
			f.add(ruleReserved, problem(m, "metadata.name", titleOf(key)+" is made by the cluster and cannot be declared: give it another name"))
		}
	}
}
