package api

import (
	"strings"
	"testing"
)

// What can be had of persistent volumes is accepted, and what cannot is refused by
// name (R12).
func TestR12_PersistentVolumesArePartlySupported(t *testing.T) {
	const (
		no     = "Forbidden: not supported by this version of Headway: "
		volume = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a, labels: {b: c}}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce, ReadOnlyMany], "
		claim  = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {resources: {requests: {storage: 1Gi}}, accessModes: [ReadWriteOncePod], "
		class  = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\n"
		local  = class + "provisioner: headway.dev/local\nvolumeBindingMode: WaitForFirstConsumer\n"
		node   = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}}"
	)
	for text, want := range map[string]string{
		volume + "hostPath: {path: /data}, claimRef: {namespace: default, name: x}}\n":                                                                              "",
		volume + "persistentVolumeReclaimPolicy: Retain, storageClassName: slow, local: {path: /data}, " + node + "}\n":                                             "",
		volume + "mountOptions: [vers=4], nfs: {server: s, path: /x, readOnly: true}}\n":                                                                            "",
		volume + "mountOptions: [noexec], local: {path: /data}, " + node + "}\n":                                                                                    "spec.mountOptions: " + no + "a folder on a node",
		volume + "local: {path: /data}}\n":                                                                                                                          "spec.nodeAffinity: Required value",
		volume + "persistentVolumeReclaimPolicy: Recycle, hostPath: {path: /data}}\n":                                                                               "spec.persistentVolumeReclaimPolicy: Forbidden: only Retain or Delete is supported",
		volume + "volumeMode: Block, local: {path: /dev/sdb}, " + node + "}\n":                                                                                      "spec.volumeMode: Forbidden: only Filesystem is supported by this version of Headway: block devices are not handed",
		volume + "csi: {driver: a.b, volumeHandle: x}}\n":                                                                                                           "spec.csi: " + no + "storage drivers are not run",
		strings.Replace(volume, "labels: {b: c}", "annotations: {pv.kubernetes.io/provisioned-by: headway.dev/local}", 1) + "local: {path: /data}, " + node + "}\n": "metadata.annotations[pv.kubernetes.io/provisioned-by]: Forbidden: a volume of headway.dev/local is made by the cluster",
		claim + "storageClassName: ''}\n":                                                                                                                           "",
		claim + "selector: {matchLabels: {a: b}, matchExpressions: [{key: c, operator: Exists}]}, volumeName: x}\n":                                                 "",
		claim + "dataSource: {kind: PersistentVolumeClaim, name: x}}\n":                                                                                             "spec.dataSource: " + no + "volumes are made empty",
		claim + "volumeMode: Block}\n":                                                                                                                              "spec.volumeMode: Forbidden: only Filesystem is supported",
		local + "reclaimPolicy: Retain\nallowVolumeExpansion: true\nallowedTopologies: [{matchLabelExpressions: [{key: zone, values: [a]}]}]\n":                     "",
		local + "parameters: {type: fast}\n":                                                                                                                        "parameters[type]: " + no + "headway.dev/local has no parameters",
		local + "mountOptions: [noatime]\n":                                                                                                                         "mountOptions: " + no + "a folder on a node is not mounted with options",
		local + "reclaimPolicy: Recycle\n":                                                                                                                          "reclaimPolicy: Forbidden: only Retain or Delete",
		class + "provisioner: headway.dev/local\n":                                                                                                                  "volumeBindingMode: " + no + "a volume of headway.dev/local is made on the node of its first pod: write WaitForFirstConsumer",
		class + "provisioner: kubernetes.io/no-provisioner\n":                                                                                                       "",
		class + "provisioner: ebs.csi.aws.com\nparameters: {type: gp3}\nmountOptions: [noatime]\n":                                                                  "",
	} {
		got := problemsOf(t, text)
		joined := ""
		for _, p := range got {
			joined += p.String() + "\n"
		}
		if want == "" && len(got) > 0 || !strings.Contains(joined, want) {
			t.Errorf("%s\n got %v\nwant %s", text, got, want)
		}
	}
}
