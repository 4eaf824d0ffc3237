package api

import "slices"

// serviceRules are the rows of a Service.
func serviceRules() []FieldRule {
	return slices.Concat(
		acted("spec.", "type selector{} clusterIP clusterIPs[] externalName externalIPs[] publishNotReadyAddresses"),
		acted("spec.ports[].", "name protocol port targetPort nodePort appProtocol"),
		acted("spec.", "sessionAffinity sessionAffinityConfig.clientIP.timeoutSeconds internalTrafficPolicy externalTrafficPolicy healthCheckNodePort"),
		acted("spec.", "allocateLoadBalancerNodePorts loadBalancerIP"),
		only("spec.ipFamilies[]", "the pod network has IPv4 alone", "IPv4"),
		only("spec.ipFamilyPolicy", "the pod network has IPv4 alone", "SingleStack", "PreferDualStack"),
		refused("a Service of type LoadBalancer has the addresses of the nodes: there are no classes of them", "spec.", "loadBalancerClass"),
		refused("whoever reaches a node reaches its load balancers: clients are not filtered", "spec.", "loadBalancerSourceRanges"),
		harmless("a preference: every ready endpoint gets its share", "spec.", "trafficDistribution"),
	)
}

// endpointsRules are the rows of Endpoints, which are mirrored to EndpointSlices.
func endpointsRules() []FieldRule {
	var out []FieldRule
	for _, list := range []string{"addresses", "notReadyAddresses"} {
		at := "subsets[]." + list + "[]."
		out = slices.Concat(out, acted(at, "ip hostname nodeName"), targetRef(at))
	}
	return append(out, acted("subsets[].ports[].", "name protocol port appProtocol")...)
}

// endpointSliceRules are the rows of an EndpointSlice.
func endpointSliceRules() []FieldRule {
	return slices.Concat(
		only("addressType", "the pod network has IPv4 alone", "IPv4"),
		acted("endpoints[].", "addresses[] conditions.ready conditions.serving conditions.terminating hostname nodeName"),
		harmless("every ready endpoint gets its share, wherever it is", "endpoints[].", "zone hints"),
		harmless("Kubernetes ignores it, too", "endpoints[].", "deprecatedTopology"),
		targetRef("endpoints[]."),
		acted("ports[].", "name protocol port appProtocol"),
	)
}

// targetRef are the rows of what an endpoint belongs to.
func targetRef(at string) []FieldRule {
	return harmless("it is for people: traffic goes to the address", at, "targetRef")
}
