package api

import (
	"strings"
	"testing"
)

const statefulSet = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  podManagementPolicy: Parallel
  ordinals: {start: 3}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 1, maxUnavailable: 2}}
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Delete}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: i}]}
`

const daemonSet = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: logs}
spec:
  minReadySeconds: 1
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  selector: {matchLabels: {app: logs}}
  template:
    metadata: {labels: {app: logs}}
    spec: {containers: [{name: logs, image: i}]}
`

func problemsOf(t *testing.T, text string) []Problem {
	t.Helper()
	manifests, problems := DecodeFile("a.yaml", []byte(text), DecodeOptions{DefaultNamespace: "default"})
	if len(manifests) != 1 || len(problems) != 0 {
		t.Fatalf("%d manifests, problems: %v", len(manifests), problems)
	}
	m := manifests[0]
	problems, _ = JudgeStored([]*Manifest{&m}, nil, nil, ConfigFile)
	return append(problems, m.Check()...)
}

// StatefulSets and DaemonSets are accepted with all that their controllers act on,
// and what they do not is refused by name (R12).
func TestR12_SetsAreActedOn(t *testing.T) {
	claims := "  volumeClaimTemplates: [{metadata: {name: d, labels: {a: b}}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]\n"
	for _, text := range []string{statefulSet, statefulSet + claims, daemonSet} {
		if problems := problemsOf(t, text); len(problems) > 0 {
			t.Errorf("refused: %v", problems)
		}
	}
	for text, want := range map[string]string{
		statefulSet + strings.Replace(claims, "spec: {", "spec: {volumeMode: Block, ", 1): "spec.volumeClaimTemplates[0].spec.volumeMode: Forbidden: only Filesystem is supported by this version of Headway: block devices are not handed to containers",
		strings.Replace(statefulSet, "RollingUpdate,", "Recreate,", 1):                    "spec.updateStrategy",
		strings.Replace(daemonSet, "maxUnavailable: 0", "maxUnavailable: 1", 1):           "spec.updateStrategy.rollingUpdate",
		strings.Replace(daemonSet, "{containers", "{runtimeClassName: x, containers", 1):  "spec.template.spec.runtimeClassName: Forbidden",
	} {
		problems := problemsOf(t, text)
		if len(problems) == 0 || !strings.Contains(problems[0].String(), want) && !strings.Contains(problems[0].Field, want) {
			t.Errorf("got %v, want %s in\n%s", problems, want, text)
		}
	}
}
