package syncer

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func externalName(name string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: outside}\nspec: {type: ExternalName, externalName: " + name + "}\n"
}

func TestExternalNamesThatAreFine(t *testing.T) {
	for _, name := range []string{"db.example.com", "db.example.com.", "web.default.svc.cluster.local"} {
		if v := (judged{after: map[string]string{"s.yaml": externalName(name)}}).verdict(t); !v.OK() || len(v.Warnings) > 0 {
			t.Errorf("%s: %v %v", name, v.Lines(), v.Warnings)
		}
	}
}

// TestClusterIPNoneDoesNotGoUnsaid: a manifest without the `clusterIP: None` that it had
// asks for the trailer with which the Service is made anew.
func TestClusterIPNoneDoesNotGoUnsaid(t *testing.T) {
	const with = "  clusterIP: None\n"
	files := func(lines string) map[string]string {
		return map[string]string{"web.yaml": app, "s.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n  ports: [{port: 80}]\n" + lines}
	}
	for name, tt := range map[string]struct {
		before, after string
		says          string
	}{
		"removed":             {with, "", `s.yaml:4:1: spec.clusterIP: Invalid value: "": field is immutable: the Service is headless (clusterIP: None), and stays so without the field; to have it deleted and made again, say so in the last paragraph of the commit message: Replace: Service/default/web`},
		"emptied":             {with, "  clusterIP: \"\"\n", "Replace: Service/default/web"},
		"the list removed":    {"  clusterIP: None\n  clusterIPs: [None]\n", "", "Replace: Service/default/web"},
		"an address instead":  {with, "  clusterIP: 10.43.0.9\n", "Replace: Service/default/web"},
		"an external name":    {with, "  type: ExternalName\n  externalName: db.example.com\n", ""},
		"still there":         {with, "  clusterIP: None\n  publishNotReadyAddresses: true\n", ""},
		"never there":         {"", "  publishNotReadyAddresses: true\n", ""},
		"in another spelling": {with, "  clusterIPs: [None]\n  clusterIP: None\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := (judged{before: files(tt.before), after: files(tt.after)}).verdict(t)
			got := strings.Join(v.Lines(), "\n")
			if tt.says == "" && got != "" || !strings.Contains(got, tt.says) || strings.Count(got, "\n") > 0 {
				t.Errorf("got %q, want %q", got, tt.says)
			}
		})
	}

	w := newWorld(t)
	w.applies("c1", "", files(with))
	first := w.service("web")
	if first.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Fatalf("the Service has %q", first.Spec.ClusterIP)
	}
	w.push(w.repo.say(w.repo.add("c2", "c1", files("")), "Replace: Service/default/web"))
	if svc := w.service("web"); w.status().Applied != commitID("c2") || svc.UID == first.UID || svc.Spec.ClusterIP == corev1.ClusterIPNone || svc.Spec.ClusterIP == "" {
		t.Errorf("with the trailer: %+v", svc.Spec)
	}
}
