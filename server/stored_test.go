package server

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"headway.dev/headway/api"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// storedObjects is an object of each stored kind, without its metadata, and the
// columns that kubectl shows of it.
func storedObjects() map[string]struct{ body, columns string } {
	type object = struct{ body, columns string }
	const (
		rules   = `rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]`
		binding = `roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}`
	)
	return map[string]object{
		"CustomResourceDefinition": {`spec: {group: example.org, names: {plural: as, kind: A}, scope: Namespaced, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}`, "Name|Scope|Versions|Created At|Group|Kind|ShortNames|Established"},
		"Ingress":                  {`spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}`, "Name|Class|Hosts|Address|Ports|Age"},
		"IngressClass":             {`spec: {controller: example.org/a}`, "Name|Controller|Parameters|Age"},
		"NetworkPolicy":            {`spec: {podSelector: {}}`, "Name|Pod-Selector|Age"},
		"ClusterRole":              {rules, "Name|Created At"},
		"ClusterRoleBinding":       {binding, "Name|Role|Age|Users|Groups|ServiceAccounts"},
		"Role":                     {rules, "Name|Created At"},
		"RoleBinding":              {binding, "Name|Role|Age|Users|Groups|ServiceAccounts"},
	}
}

// TestStoredKinds: Kubernetes' registries serve each stored kind from the store, and
// who writes one is warned.
func TestStoredKinds(t *testing.T) {
	f := start(t, 0, nil)
	client := f.adminHTTP()
	ask := func(method, path, contentType, accept, body string) (int, string, http.Header) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, f.url+path, strings.NewReader(body))
		must(t, err)
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Accept", accept)
		resp, err := client.Do(r)
		must(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(text), resp.Header
	}
	objects := storedObjects()
	for _, k := range api.Kinds() {
		if !k.Told {
			continue
		}
		o, ok := objects[k.Kind]
		if !ok {
			t.Errorf("%s has no object", k.Kind)
			continue
		}
		path, name := "/apis/"+k.GroupVersion().String(), "a"
		if k.Group == "" {
			path = "/api/v1"
		}
		if k.Namespaced {
			path += "/namespaces/default"
		}
		if k.Kind == "CustomResourceDefinition" {
			name = "as.example.org"
		}
		path += "/" + k.Resource
		body := "apiVersion: " + k.GroupVersion().String() + "\nkind: " + k.Kind + "\nmetadata: {name: " + name + "}\n" + o.body + "\n"
		status, text, header := ask("POST", path, "application/yaml", "application/json", body)
		if status != http.StatusCreated {
			t.Errorf("create %s: %d %s", k.Kind, status, text)
			continue
		}
		if w := header.Get("Warning"); !strings.Contains(w, k.Kind+" is stored, not enforced by this version") {
			t.Errorf("create %s: warning %q", k.Kind, w)
		}
		now, err := f.store.Current(t.Context())
		if err == nil {
			err = f.store.WaitRevision(t.Context(), now)
		}
		if err != nil {
			t.Fatal(err)
		}
		kept := f.store.List(k.GroupResource(), "")
		if len(kept) != 1 || kept[0].GetName() != name || kept[0].GetUID() == "" {
			t.Errorf("the store has %v of %s", kept, k.Kind)
		}
		status, text, _ = ask("PATCH", path+"/"+name, "application/merge-patch+json", "application/json", `{"metadata": {"labels": {"b": "c"}}}`)
		if status != http.StatusOK || !strings.Contains(text, `"b":"c"`) {
			t.Errorf("label %s: %d %s", k.Kind, status, text)
		}
		var table metav1.Table
		status, text, _ = ask("GET", path, "", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
		must(t, json.Unmarshal([]byte(text), &table))
		var columns []string
		for _, c := range table.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		if got := strings.Join(columns, "|"); status != http.StatusOK || got != o.columns || len(table.Rows) != 1 {
			t.Errorf("columns of %s: %q, %d rows", k.Kind, got, len(table.Rows))
		}
		if status, text, header = ask("DELETE", path+"/"+name+"?propagationPolicy=Background", "", "application/json", ""); status != http.StatusOK || header.Get("Warning") != "" {
			t.Errorf("delete %s: %d %s", k.Kind, status, text)
		}
		if status, text, _ = ask("GET", path+"/"+name, "", "application/json", ""); status != http.StatusNotFound {
			t.Errorf("%s is still there: %d %s", k.Kind, status, text)
		}
	}
}

// The replicas of what has some can be read and set as kubectl scale does.
func TestScale(t *testing.T) {
	f := start(t, 0, nil)
	ctx := t.Context()
	selectors := map[string]string{"ReplicationController": "{app: a}", "StatefulSet": "{matchLabels: {app: a}}"}
	for resource, kind := range map[string]string{"/api/v1/namespaces/default/replicationcontrollers": "ReplicationController", "/apis/apps/v1/namespaces/default/statefulsets": "StatefulSet"} {
		version := strings.Split(strings.TrimPrefix(strings.TrimPrefix(resource, "/apis/"), "/api/"), "/namespaces")[0]
		body := "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: a}\nspec: {template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}, selector: " + selectors[kind] + "}"
		_, err := f.admin.RESTClient().Post().AbsPath(resource).SetHeader("Content-Type", "application/yaml").Body([]byte(body)).DoRaw(ctx)
		must(t, err)
		raw, err := f.admin.RESTClient().Patch("application/merge-patch+json").AbsPath(resource + "/a/scale").Body([]byte(`{"spec": {"replicas": 5}}`)).DoRaw(ctx)
		must(t, err)
		if !strings.Contains(string(raw), `"kind":"Scale"`) || !strings.Contains(string(raw), `"replicas":5`) {
			t.Errorf("%s: %s", kind, raw)
		}
	}
}
