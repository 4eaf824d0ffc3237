package api

import (
	"strings"
	"testing"
)

func TestR12_VolumesArePartlySupported(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n"
	const no = "not supported by this version of Headway: "
	for text, want := range map[string]string{
		"    volumeMounts: [{name: v, mountPath: /v, subPath: x, mountPropagation: HostToContainer}]\n  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}, {name: w}]\n":                                                                                                     "",
		"    volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(X), readOnly: true, recursiveReadOnly: IfPossible}]\n  volumes: [{name: v, emptyDir: {medium: Memory}}]\n":                                                                                             "",
		"  volumes: [{name: a, configMap: {name: x, optional: true, defaultMode: 256, items: [{key: k, path: p, mode: 292}]}}, {name: b, secret: {secretName: x}}, {name: c, hostPath: {path: /x, type: Socket}}]\n":                                                       "",
		"  volumes: [{name: v, projected: {sources: [{configMap: {name: x}}, {secret: {name: other}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.labels}}]}}]}}]\n":                                                                                   "",
		"  securityContext: {fsGroup: 1, fsGroupChangePolicy: OnRootMismatch, supplementalGroups: [2], supplementalGroupsPolicy: Strict}\n":                                                                                                                                "",
		"  volumes: [{name: v, persistentVolumeClaim: {claimName: x, readOnly: true}}, {name: w, ephemeral: {volumeClaimTemplate: {metadata: {labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Gi}}}}}}]\n": "",
		"  volumes: [{name: w, ephemeral: {volumeClaimTemplate: {spec: {volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]\n":                                                                                                     "spec.volumes[0].ephemeral.volumeClaimTemplate.spec.volumeMode: Forbidden: only Filesystem is supported by this version of Headway: block devices are not handed to containers",
		"  volumes: [{name: v, emptyDir: {medium: HugePages-2Mi}}, {name: w, emptyDir: {medium: HugePages}}]\n":                                                                                                                                                            "",
		"  volumes: [{name: v, emptyDir: {medium: Glue}}]\n":                                                                 "spec.volumes[0].emptyDir.medium: Forbidden: only Memory or HugePages or HugePages-2Mi or",
		"  volumes: [{name: v, nfs: {server: x, path: /y}}]\n":                                                               "",
		"    volumeMounts: [{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: Enabled}]\n  volumes: [{name: v}]\n": "recursiveReadOnly: Forbidden: only Disabled or IfPossible is supported",
		"  serviceAccountName: x\n  volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]\n":        "",
		"  volumes: [{name: v, configMap: {name: x, items: [{key: k, path: ../p}]}}]\n":                                      "spec.volumes[0].configMap.items[0].path: Invalid value: \"../p\": must not contain '..'",
		"    volumeMounts: [{name: none, mountPath: /v}]\n":                                                                  "spec.containers[0].volumeMounts[0].name: Not found: \"none\"",
	} {
		got := problemsOf(t, pod+text)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), want)) {
			t.Errorf("%s\n got %v\nwant %s", text, got, want)
		}
	}
}
