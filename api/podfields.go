package api

import (
	"slices"
	"strings"
)

// podRules are the rows of a pod's spec, wherever it stands.
func podRules() []FieldRule {
	affinity := "affinity.nodeAffinity."
	return withInit(slices.Concat(
		acted("containers[].", "name image imagePullPolicy command[] args[] workingDir"),
		acted("containers[].env[].", "name value"),
		acted("containers[].env[].valueFrom.configMapKeyRef.", "name key optional"),
		acted("containers[].env[].valueFrom.secretKeyRef.", "name key optional"),
		acted("containers[].env[].valueFrom.fieldRef.", "fieldPath"),
		only("containers[].env[].valueFrom.fieldRef.apiVersion", "there is no other version", "v1"),
		acted("containers[].env[].valueFrom.resourceFieldRef.", "containerName resource divisor"),
		refused("values out of files are not read", "containers[].env[].valueFrom.", "fileKeyRef"),
		acted("containers[].envFrom[].", "prefix configMapRef.name configMapRef.optional secretRef.name secretRef.optional"),
		harmless("a name only", "containers[].ports[].", "name"),
		acted("containers[].ports[].", "containerPort protocol hostPort hostIP"),
		acted("containers[].resources.", "requests.cpu requests.memory requests.ephemeral-storage limits.cpu limits.memory limits.ephemeral-storage"),
		acted("containers[].resources.", "requests.hugepages-size limits.hugepages-size"),
		acted("containers[].resources.", "requests.extended-resource limits.extended-resource"),
		refused("only cpu, memory, ephemeral-storage, huge pages and extended resources are accounted for", "containers[].resources.", "requests{} limits{}"),
		refused("devices are not handed to containers", "containers[].resources.", "claims"),
		harmless("containers are not resized in place", "containers[].", "resizePolicy"),
		acted("containers[].", "terminationMessagePath terminationMessagePolicy"),
		acted("containers[].securityContext.", "runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem privileged allowPrivilegeEscalation capabilities.add[] capabilities.drop[]"),
		only("containers[].securityContext.procMount", "/proc is masked in every container", "Default"),
		confinement("containers[].securityContext."),
		probeRules("containers[]."),
		hookRules("containers[].lifecycle."),
		mountRules("containers[]."),
		acted("containers[].", "restartPolicy restartPolicyRules[].exitCodes.operator restartPolicyRules[].exitCodes.values[]"),
		only("containers[].restartPolicyRules[].action", "a container is restarted alone", "Restart"),
		acted("containers[].", "stdin stdinOnce tty"),
		acted("ephemeralContainers[].", "targetContainerName"),
		volumeRules(),

		acted("", "restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds hostAliases[].ip hostAliases[].hostnames[]"),
		acted("", "hostname subdomain setHostnameAsFQDN hostnameOverride"),
		acted("", "dnsPolicy dnsConfig.nameservers[] dnsConfig.searches[] dnsConfig.options[].name dnsConfig.options[].value"),

		acted("", "nodeName nodeSelector{}"),
		nodeTerm(affinity+"requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]."),
		acted(affinity+"preferredDuringSchedulingIgnoredDuringExecution[].", "weight"),
		nodeTerm(affinity+"preferredDuringSchedulingIgnoredDuringExecution[].preference."),
		podAffinity("affinity.podAffinity."),
		podAffinity("affinity.podAntiAffinity."),
		acted("topologySpreadConstraints[].", "maxSkew topologyKey whenUnsatisfiable minDomains nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys[]"),
		selector("topologySpreadConstraints[].labelSelector"),
		acted("tolerations[].", "key operator value effect tolerationSeconds"),
		only("schedulerName", "there is one scheduler", "default-scheduler"),
		acted("", "schedulingGates[].name priorityClassName priority preemptionPolicy"),
		refused("pods are scheduled one by one, not in groups", "", "schedulingGroup"),
		refused("devices are not handed to containers", "", "resourceClaims"),
		refused("requests and limits are those of the containers", "", "resources"),
		acted("", "readinessGates[].conditionType"),
		refused("nobody is asked before a pod goes", "", "evictionResponders"),

		acted("", "serviceAccountName serviceAccount automountServiceAccountToken"),
		acted("", "enableServiceLinks"),
		acted("", "hostNetwork hostPID hostIPC shareProcessNamespace"),
		only("hostUsers", "user namespaces are not made", "true"),
		acted("securityContext.", "runAsUser runAsGroup runAsNonRoot"),
		confinement("securityContext."),
		acted("securityContext.", "fsGroup supplementalGroups[] supplementalGroupsPolicy"),
		acted("securityContext.", "fsGroupChangePolicy"),
		acted("securityContext.sysctls[].", "value"),
		only("securityContext.sysctls[].name", "another is not the pod's own, or can harm its node", safeSysctls()...),
		refused("volumes are not labelled for SELinux", "securityContext.", "seLinuxChangePolicy"),
		only("os.name", "every node runs Linux", "linux"),
		refused("every container runs in runc", "", "runtimeClassName overhead"),
		acted("", "imagePullSecrets[].name"),
	))
}

// withInit says of init and ephemeral containers what is said of containers.
func withInit(rules []FieldRule) []FieldRule {
	for _, r := range rules {
		if rest, ok := strings.CutPrefix(r.Path, "containers[]."); ok {
			for _, list := range []string{"initContainers[].", "ephemeralContainers[]."} {
				r.Path = list + rest
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// probeRules are the rows of a container's probes.
func probeRules(prefix string) (out []FieldRule) {
	for _, name := range []string{"startupProbe.", "readinessProbe.", "livenessProbe."} {
		out = slices.Concat(out, acted(prefix+name, "exec.command[] tcpSocket.port tcpSocket.host grpc.port grpc.service"), httpRules(prefix+name+"httpGet."),
			only(prefix+name+"grpc.mode", "containers are asked without TLS", "Plaintext"),
			acted(prefix+name, "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold"))
		if name == "readinessProbe." {
			out = append(out, refused("a container that is not ready is not killed", prefix+name, "terminationGracePeriodSeconds")...)
		} else {
			out = append(out, acted(prefix+name, "terminationGracePeriodSeconds")...)
		}
	}
	return out
}

// hookRules are the rows of a container's hooks.
func hookRules(prefix string) []FieldRule {
	out := acted(prefix, "stopSignal")
	for _, name := range []string{"postStart.", "preStop."} {
		out = slices.Concat(out, acted(prefix+name, "exec.command[] sleep.seconds"), httpRules(prefix+name+"httpGet."),
			refused("a hook cannot be one, in Kubernetes it fails when it is called", prefix+name, "tcpSocket"))
	}
	return out
}

func httpRules(prefix string) []FieldRule {
	return append(acted(prefix, "path port host scheme httpHeaders[].name httpHeaders[].value"), only(prefix+"protocol", "containers are asked by HTTP/1.1", "HTTP1")...)
}

// confinement are the rows of the kernel's ways to confine that a pod's and a
// container's security context have in common.
func confinement(prefix string) []FieldRule {
	return slices.Concat(
		acted(prefix+"seccompProfile.", "type localhostProfile"),
		acted(prefix+"appArmorProfile.", "type localhostProfile"),
		harmless("a label counts on nodes that have SELinux only", prefix, "seLinuxOptions.user seLinuxOptions.role seLinuxOptions.type seLinuxOptions.level"),
		refused("every node runs Linux", prefix, "windowsOptions"),
	)
}

// safeSysctls are the kernel parameters that Kubernetes lets every pod set.
func safeSysctls() []string {
	out := []string{"kernel.shm_rmid_forced"}
	for _, name := range strings.Fields("ip_local_port_range ip_local_reserved_ports ip_unprivileged_port_start ping_group_range " +
		"tcp_syncookies tcp_keepalive_time tcp_keepalive_intvl tcp_keepalive_probes tcp_fin_timeout tcp_rmem tcp_wmem") {
		out = append(out, "net.ipv4."+name)
	}
	return out
}

// podAffinity are the rows of affinity to, or against, other pods.
func podAffinity(prefix string) []FieldRule {
	term := func(prefix string) []FieldRule {
		return slices.Concat(acted(prefix, "topologyKey namespaces[] matchLabelKeys[] mismatchLabelKeys[]"), selector(prefix+"labelSelector"), selector(prefix+"namespaceSelector"))
	}
	const required, preferred = "requiredDuringSchedulingIgnoredDuringExecution[].", "preferredDuringSchedulingIgnoredDuringExecution[]."
	return slices.Concat(term(prefix+required), acted(prefix+preferred, "weight"), term(prefix+preferred+"podAffinityTerm."))
}

// nodeTerm are the rows of one term that selects nodes.
func nodeTerm(prefix string) []FieldRule {
	return slices.Concat(requirement(prefix+"matchExpressions[]."), requirement(prefix+"matchFields[]."))
}

// requirement are the rows of one condition of a selector.
func requirement(prefix string) []FieldRule { return acted(prefix, "key operator values[]") }

// selector are the rows of a label selector.
func selector(path string) []FieldRule {
	return append(acted(path+".", "matchLabels{}"), requirement(path+".matchExpressions[].")...)
}

// misplacedPodFields are fields that real manifests have where Kubernetes has
// none. They are unknown, and the reason says what was meant.
func misplacedPodFields() []FieldRule {
	const unknown = "unknown field: "
	return slices.Concat(
		refused(unknown+"ports stand beside the securityContext, not in it", "containers[].securityContext.", "ports[].containerPort"),
		refused(unknown+"the strategy stands in a Deployment's spec", "", "strategy.type"),
		refused(unknown+"written imageFeatures in a StorageClass; a pod's volume has none", "volumes[].rbd.", "imagefeatures"),
		refused(unknown+"written imageFormat in a StorageClass; a pod's volume has none", "volumes[].rbd.", "imageformat"),
		refused(unknown+"a volume of StorageOS has no pool", "volumes[].storageos.", "pool"),
		refused(unknown+"written protectionDomain", "volumes[].scaleIO.", "protectionDoamin"),
	)
}
