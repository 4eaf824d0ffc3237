package api

// The built-in class of persistent volumes: a folder on the node that the first pod
// of a claim is placed on. The scheduler makes the volume in the transaction that
// places the pod; the node's agent makes the folder, and removes it before the
// volume's object may go.
const (
	// LocalClass is the name of the StorageClass that every cluster has.
	LocalClass = "local"
	// LocalProvisioner is the provisioner of LocalClass, and of any other StorageClass
	// whose volumes are folders on nodes.
	LocalProvisioner = "headway.dev/local"
	// LocalVolumeFinalizer keeps a PersistentVolume's object until its node's agent has
	// removed the data.
	LocalVolumeFinalizer = "headway.dev/local-volume"
	// VolumesDirAnnotation is set by an agent on its Node: the folder in which it makes
	// volumes, one folder per PersistentVolume, by name. A Node without it makes none.
	VolumesDirAnnotation = "headway.dev/volumes-dir"
	// ProvisionedByAnnotation is Kubernetes' own, on a PersistentVolume that was made
	// for a claim: the name of the provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)
