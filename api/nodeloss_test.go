package api

import (
	"strings"
	"testing"
)

// TestR12_OnNodeLossIsRefused: wherever the annotation would mean something, it is
// refused with its place; as data it is just that.
func TestR12_OnNodeLossIsRefused(t *testing.T) {
	const pod = "spec: {containers: [{name: c, image: i:1}]"
	for name, tt := range map[string]struct{ text, want string }{
		"a Pod": {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  annotations:\n    headway.dev/on-node-loss: replace\n" + pod + "}\n",
			"f.yaml:6:5: metadata.annotations[headway.dev/on-node-loss]: Forbidden: not acted on in this version"},
		"a StatefulSet": {"apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\nspec:\n  serviceName: a\n  selector: {matchLabels: {app: a}}\n  template:\n    metadata:\n      labels: {app: a}\n      annotations: {headway.dev/on-node-loss: replace}\n    " + pod + "}\n",
			"f.yaml:10:21: spec.template.metadata.annotations[headway.dev/on-node-loss]: Forbidden: not acted on in this version"},
		"a CronJob": {"apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec:\n  schedule: '* * * * *'\n  jobTemplate:\n    spec:\n      template:\n        metadata:\n          annotations: {headway.dev/on-node-loss: replace}\n        " + pod + ", restartPolicy: Never}\n",
			"f.yaml:10:25: spec.jobTemplate.spec.template.metadata.annotations[headway.dev/on-node-loss]: Forbidden: not acted on in this version"},
		"a ConfigMap's data": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {annotations: replace}\n", ""},
		"another annotation": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {example.com/on-node-loss: replace}}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			manifests, problems := DecodeFile("f.yaml", []byte(tt.text), DecodeOptions{})
			if len(problems) > 0 || len(manifests) != 1 {
				t.Fatalf("%v, %d manifests", problems, len(manifests))
			}
			manifests[0].Object.SetNamespace("default")
			var got []string
			for _, p := range manifests[0].Check() {
				got = append(got, p.String())
			}
			if text := strings.Join(got, "\n"); tt.want == "" && text != "" || !strings.Contains(text, tt.want) || len(got) > 1 {
				t.Errorf("got %q, want %q", text, tt.want)
			}
		})
	}
}
