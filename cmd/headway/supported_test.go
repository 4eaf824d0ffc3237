package main

import (
	"encoding/json"
	"strings"
	"testing"

	"headway.dev/headway/api"
)

func TestR12_SupportedJSON(t *testing.T) {
	out, _, err := execute(t, "supported", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Kinds     map[string]string
		PodFields map[string]struct{ Status, Why string }
		Fields    map[string]map[string]struct{ Status, Why string }
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"apps/v1 Deployment": "acted", "v1 ServiceAccount": "acted", "networking.k8s.io/v1 Ingress": "stored", "v1 PodTemplate": "refused", "v1 Node": "refused", "headway.dev/v1 Config": "acted"} {
		if s.Kinds[kind] != want {
			t.Errorf("%s is %q, want %s", kind, s.Kinds[kind], want)
		}
	}
	for path, want := range map[string]string{
		"spec.containers[].image": "acted", "spec.containers[].livenessProbe.httpGet.port": "acted", "spec.initContainers[].startupProbe.grpc.port": "acted", "spec.nodeSelector{}": "acted",
		"spec.serviceAccountName": "acted", "spec.containers[].env[].valueFrom.fieldRef.apiVersion": "harmless", "spec.runtimeClassName": "refused", "spec.affinity": "acted", "spec.containers[].lifecycle": "acted", "spec.containers[].lifecycle.preStop.tcpSocket": "refused",
	} {
		f := s.PodFields[path]
		if f.Status != want || (f.Why == "") != (want == "acted") {
			t.Errorf("%s is %+v, want %s", path, f, want)
		}
	}
	for path, f := range s.PodFields {
		if !strings.HasPrefix(path, "spec.") || f.Status != "acted" && f.Status != "harmless" && f.Status != "refused" {
			t.Errorf("%s is %q", path, f.Status)
		}
	}
	for _, k := range api.Kinds() {
		name := k.GroupVersion().String() + " " + k.Kind
		if k.Declarable != (s.Fields[name]["metadata.name"].Status == "acted") {
			t.Errorf("%s: %v", name, s.Fields[name]["metadata.name"])
		}
	}
	if s.Fields["headway.dev/v1 Config"]["paths[].drift"].Status != "acted" || s.Fields["batch/v1 Job"]["spec.template.spec"].Status != "acted" {
		t.Error("fields are missing")
	}
}

func TestSupportedForAPerson(t *testing.T) {
	for args, want := range map[string][]string{
		"":            {"Deployment", "apps/v1", "StatefulSet", "spec.runtimeClassName", "every container runs in runc"},
		"deployments": {"apps/v1 Deployment: acted\n", "acted     spec.strategy.type\n", "acted     spec.template.spec  (a pod's fields have a list of their own)"},
		"pod":         {"v1 Pod: acted\n", "refused   spec.runtimeClassName  (every container runs in runc", "acted     spec.dnsPolicy\n", "harmless  spec.schedulerName  (only default-scheduler: "},
		"service":     {"v1 Service: acted\n", "acted     spec.ports[].nodePort\n"},
		"podtemplate": {"v1 PodTemplate: refused: nothing is made from it"},
		"Event":       {"v1 Event: refused", "events.k8s.io/v1 Event: refused"},
		"Config":      {"headway.dev/v1 Config: acted: only as .headway.yaml", "deletionLimit.percent", "sources[].namespaces[]"},
	} {
		out, _, err := execute(t, append([]string{"supported"}, strings.Fields(args)...)...)
		if err != nil {
			t.Errorf("%s: %v", args, err)
		}
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s does not say %q:\n%.2000s", args, w, out)
			}
		}
	}
	if _, _, err := execute(t, "supported", "Nonsense"); err == nil || !strings.Contains(err.Error(), `"Nonsense" is no kind`) {
		t.Errorf("got %v", err)
	}
}

func TestCompletion(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_headway", "zsh": "#compdef headway", "fish": "complete -c headway"} {
		out, _, err := execute(t, "completion", shell)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %.100s", shell, err, out)
		}
		help, _, err := execute(t, "completion", "--help")
		if err != nil || !strings.Contains(help, "headway completion "+shell+" > ") {
			t.Errorf("the help does not say how to install it for %s: %v", shell, err)
		}
	}
	if _, _, err := execute(t, "completion", "powershell"); err == nil {
		t.Error("powershell is accepted")
	}
	out, _, err := execute(t, "__complete", "supported", "Cron")
	if err != nil || !strings.Contains(out, "CronJob\n") {
		t.Errorf("kinds are not completed: %v\n%s", err, out)
	}
}
