package api

import "slices"

// volumeRules are the rows of a pod's volumes.
func volumeRules() []FieldRule {
	items := func(prefix string) []FieldRule {
		return slices.Concat(acted(prefix+"items[].", "key path mode"), refused("files belong to root", prefix+"items[].", "user"))
	}
	downward := func(prefix string) []FieldRule {
		prefix += "items[]."
		return slices.Concat(
			acted(prefix, "path mode fieldRef.fieldPath resourceFieldRef.containerName resourceFieldRef.resource resourceFieldRef.divisor"),
			only(prefix+"fieldRef.apiVersion", "there is no other version", "v1"),
			refused("files belong to root", prefix, "user"),
		)
	}
	const root = "files belong to root"
	sources := "volumes[].projected.sources[]."
	return slices.Concat(
		acted("volumes[].", "name emptyDir.sizeLimit hostPath.path hostPath.type"),
		only("volumes[].emptyDir.medium", "a node has memory, and pages of these sizes", "Memory", "HugePages", "HugePages-2Mi", "HugePages-1Gi", "HugePages-64Ki", "HugePages-32Mi", "HugePages-512Mi", "HugePages-16Gi"),
		refused("everybody may write into an emptyDir", "volumes[].emptyDir.", "mode"),
		acted("volumes[].configMap.", "name optional defaultMode"), items("volumes[].configMap."),
		acted("volumes[].secret.", "secretName optional defaultMode"), items("volumes[].secret."),
		acted("volumes[].downwardAPI.", "defaultMode"), downward("volumes[].downwardAPI."),
		refused(root, "volumes[].", "configMap.defaultUser secret.defaultUser downwardAPI.defaultUser projected.defaultUser"),
		acted("volumes[].projected.", "defaultMode"),
		acted(sources+"configMap.", "name optional"), items(sources+"configMap."),
		acted(sources+"secret.", "name optional"), items(sources+"secret."),
		downward(sources+"downwardAPI."),
		refused("pods get no API credentials", sources, "serviceAccountToken"),
		refused("certificates are not handed to pods", sources, "clusterTrustBundle podCertificate"),
		acted("volumes[].persistentVolumeClaim.", "claimName readOnly"),
		claimTemplateRules("volumes[].ephemeral.volumeClaimTemplate"),
		refused(noDrivers, "volumes[].", "csi flexVolume"),
		refused("images are not mounted", "volumes[].", "image"),
		acted("volumes[].nfs.", "server path readOnly"),
		refused("file systems of other machines are mounted by nfs alone", "volumes[].", "iscsi glusterfs rbd.monitors rbd.image rbd.fsType rbd.pool rbd.user rbd.keyring rbd.secretRef rbd.readOnly cephfs fc portworxVolume quobyte scaleIO.gateway scaleIO.system scaleIO.secretRef scaleIO.sslEnabled scaleIO.protectionDomain scaleIO.storagePool scaleIO.storageMode scaleIO.volumeName scaleIO.fsType scaleIO.readOnly storageos.volumeName storageos.volumeNamespace storageos.fsType storageos.readOnly storageos.secretRef flocker"),
		refused(noClouds, "volumes[].", "gcePersistentDisk awsElasticBlockStore azureDisk azureFile cinder vsphereVolume photonPersistentDisk"),
		refused("repositories are not cloned into volumes", "volumes[].", "gitRepo"),
	)
}

// mountRules are the rows of where a container sees volumes.
func mountRules(prefix string) []FieldRule {
	return slices.Concat(
		acted(prefix+"volumeMounts[].", "name mountPath readOnly subPath subPathExpr mountPropagation"),
		only(prefix+"volumeMounts[].recursiveReadOnly", "what is mounted below a read-only volume keeps its own mode", "Disabled", "IfPossible"),
		refused("mounts have no further options", prefix+"volumeMounts[].", "bindMountOptions"),
		refused(noBlocks, prefix, "volumeDevices"),
	)
}
