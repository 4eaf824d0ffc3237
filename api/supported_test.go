package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// pathSteps cuts a field's path: "a.b[].c{}" is a, b, [], c, {}.
func pathSteps(path string) []string {
	return strings.Split(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path), ".")
}

// TestR12_RulesNameFields: a row about a field that does not exist is a typing
// mistake, and then the field that was meant is refused.
func TestR12_RulesNameFields(t *testing.T) {
	for _, k := range api.Kinds() {
		rules := api.FieldRules(k)
		if k.Kind == "Pod" {
			rules = append(slices.DeleteFunc(rules, func(r api.FieldRule) bool { return r.Path == "spec" }), api.PodFieldRules()...)
		}
		seen := map[string]bool{}
		for _, r := range rules {
			at := reflect.TypeOf(k.Prototype)
			for _, step := range pathSteps(r.Path) {
				if at = into(at, step); at == nil {
					t.Errorf("%s has no field %s", k.Kind, r.Path)
					break
				}
			}
			switch {
			case seen[r.Path]:
				t.Errorf("%s %s has two rows", k.Kind, r.Path)
			case r.Verdict != api.Acted && r.Verdict != api.Harmless && r.Verdict != api.Refused && (r.Verdict != api.Stored || !k.Told):
				t.Errorf("%s %s has the verdict %q", k.Kind, r.Path, r.Verdict)
			case (r.Verdict == api.Acted) != (r.Why == "") && r.Path != api.PodSpecPath(k):
				t.Errorf("%s %s is %s with the reason %q", k.Kind, r.Path, r.Verdict, r.Why)
			case len(r.Only) > 0 && r.Verdict != api.Harmless:
				t.Errorf("%s %s is %s with some values only", k.Kind, r.Path, r.Verdict)
			}
			seen[r.Path] = true
		}
		for p := range seen {
			for q := range seen {
				if strings.HasPrefix(q, p+".") || strings.HasPrefix(q, p+"[") {
					t.Errorf("%s: the row %s stands above the row %s and would never be asked", k.Kind, p, q)
				}
			}
		}
	}
}

// into is the type one step down; nil when there is none.
func into(t reflect.Type, step string) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice && step == "[]":
		return t.Elem()
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() != reflect.Struct:
		return nil
	}
	f, ok := fieldNamed(t, step)
	if !ok {
		return nil
	}
	return f.Type
}

// fieldNamed finds a field by its JSON name.
func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// allFields are the fields of every kind, those of a pod's spec once.
func allFields() map[string][]api.Field {
	out := map[string][]api.Field{"a pod's spec": api.PodFields()}
	for _, k := range api.Kinds() {
		if k.Declarable {
			out[k.Kind] = api.Fields(k)
		}
	}
	return out
}

// TestR12_EveryFieldIsInARow walks the Go types: a new release of Kubernetes, or a
// new kind, brings fields that somebody has to judge. What is acted on is named
// field by field, so that nothing new hides below it.
func TestR12_EveryFieldIsInARow(t *testing.T) {
	for kind, fields := range allFields() {
		if len(fields) < 20 {
			t.Errorf("%s has only %d fields", kind, len(fields))
		}
		for i, f := range fields {
			switch {
			case f.Rule.Verdict == "":
				t.Errorf("%s: %s is in no row of api/podfields.go or api/kindfields.go", kind, f.Path)
			case f.Rule.Verdict == api.Acted && f.Rule.Path != f.Path:
				t.Errorf("%s: %s is acted on only by the row %s above it", kind, f.Path, f.Rule.Path)
			case f.Rule.Verdict != api.Acted && f.Rule.Reason() == "":
				t.Errorf("%s: %s is %s without a reason", kind, f.Path, f.Rule.Verdict)
			case i > 0 && fields[i-1].Path >= f.Path:
				t.Errorf("%s: %s after %s", kind, f.Path, fields[i-1].Path)
			}
		}
	}
}

// TestR12_TheTableIsWhatHappens sets each field of each kind alone and compares
// what Unsupported says with the table.
func TestR12_TheTableIsWhatHappens(t *testing.T) {
	tried := 0
	try := func(k api.Kind, prefix string, fields []api.Field) {
		for _, f := range fields {
			path := prefix + f.Path
			obj := k.New()
			value, ok := set(reflect.ValueOf(obj).Elem(), pathSteps(path))
			if !ok || !f.Leaf || strings.HasPrefix(path, "metadata.") || path == "apiVersion" || path == "kind" {
				continue // not a field of the Go type, or not of the spec
			}
			tried++
			want := f.Rule.Verdict == api.Refused || len(f.Rule.Only) > 0 && !slices.Contains(f.Rule.Only, value)
			var said []string
			for _, e := range api.Unsupported(obj) {
				if at := indices.ReplaceAllString(e.Field, "[]"); strings.HasPrefix(path+".", strings.TrimSuffix(at, "[]")) {
					said = append(said, e.Detail)
				}
			}
			if (len(said) > 0) != want || len(said) > 1 || want && !strings.Contains(said[0], f.Rule.Why) {
				t.Errorf("%s %s is %s (%s), but: %q", k.Kind, path, f.Rule.Verdict, f.Rule.Reason(), said)
			}
		}
	}
	for _, k := range api.Kinds() {
		if !k.Declarable {
			continue
		}
		try(k, "", api.Fields(k))
		for _, f := range api.Fields(k) {
			if base, ok := strings.CutSuffix(f.Path, "spec"); ok && f.Leaf && f.Rule.Verdict == api.Acted {
				try(k, base, api.PodFields())
			}
		}
	}
	if tried < 3000 {
		t.Errorf("only %d fields were tried", tried)
	}
}

// set gives the field at a path a value that is not its zero, and says which.
func set(v reflect.Value, steps []string) (value string, ok bool) {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse("1")))
		return "1", len(steps) == 0
	case intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromInt32(1)))
		return "1", len(steps) == 0
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return set(v.Elem(), steps)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("x"))
			return "x", len(steps) == 0
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if len(steps) == 0 || steps[0] != "[]" {
			return "", false
		}
		return set(v.Index(0), steps[1:])
	case reflect.Map:
		if len(steps) == 0 {
			return "", false
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		value, ok := set(elem, steps[1:])
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(steps[0]).Convert(v.Type().Key()), elem)
		return value, ok
	case reflect.Struct:
		if len(steps) == 0 {
			return "", false
		}
		f, ok := fieldNamed(v.Type(), steps[0])
		if !ok {
			return "", false
		}
		return set(v.FieldByIndex(f.Index), steps[1:])
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	default:
		return "", false
	}
	return fmt.Sprint(v.Interface()), len(steps) == 0
}

// TestR12_MetadataIsJudgedByTheTable holds Manifest.Check and the decoder against
// the rows of the metadata and of the status.
func TestR12_MetadataIsJudgedByTheTable(t *testing.T) {
	values := map[string]string{
		"labels": "{a: b}", "annotations": "{a: b}", "finalizers": "[a.b/c]", "ownerReferences": "[{apiVersion: v1, kind: Pod, name: a, uid: u}]",
		"generation": "7", "deletionGracePeriodSeconds": "7", "managedFields": "[{manager: m}]",
		"creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z",
	}
	for _, k := range api.Kinds() {
		for _, r := range api.FieldRules(k) {
			name, ok := strings.CutPrefix(r.Path, "metadata.")
			if !ok && r.Path != "status" {
				continue
			}
			name = strings.TrimSuffix(name, "{}")
			if k.Kind == "CustomResourceDefinition" && name == "name" {
				continue // made of its spec, which is not here
			}
			meta, status := "name: a", ""
			switch value := values[name]; {
			case r.Path == "status":
				status = "status: {x: y}\n"
			case name == "name":
			case value != "":
				meta += ", " + name + ": " + value
			default:
				meta += ", " + name + ": x"
			}
			manifests, problems := decode(fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {%s}\n%s", k.GroupVersion(), k.Kind, meta, status))
			if len(problems) > 0 || len(manifests) != 1 {
				t.Fatalf("%s: %v", r.Path, problems)
			}
			said := func(problems []api.Problem) bool {
				return slices.ContainsFunc(problems, func(p api.Problem) bool { return p.Field == strings.TrimSuffix(r.Path, "{}") })
			}
			m := manifests[0]
			if refused, warned := said(m.Check()), said(m.Warnings); refused != (r.Verdict == api.Refused) || warned != (r.Verdict == api.Harmless) {
				t.Errorf("%s %s is %s; refused %v, warned %v", k.Kind, r.Path, r.Verdict, refused, warned)
			}
		}
	}
}

// An empty map is let pass where its fields are judged one by one, and refused
// where the map itself is.
func TestR12_EmptyMaps(t *testing.T) {
	pod := func(spec corev1.PodSpec) *corev1.Pod { return &corev1.Pod{Spec: spec} }
	for _, spec := range []corev1.PodSpec{
		{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}, SecurityContext: &corev1.PodSecurityContext{}, DNSConfig: &corev1.PodDNSConfig{}},
		{Containers: []corev1.Container{{Lifecycle: &corev1.Lifecycle{}, SecurityContext: &corev1.SecurityContext{SELinuxOptions: &corev1.SELinuxOptions{}}}}},
	} {
		if errs := api.Unsupported(pod(spec)); len(errs) > 0 {
			t.Error(errs)
		}
	}
	for _, spec := range []corev1.PodSpec{
		{Containers: []corev1.Container{{Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}}}}},
		{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}}}},
	} {
		if errs := api.Unsupported(pod(spec)); len(errs) != 1 {
			t.Errorf("%+v: %v", spec, errs)
		}
	}
}

// TestR12_EveryKindIsInARow compares the table of kinds with what Kubernetes'
// own server says that it serves.
func TestR12_EveryKindIsInARow(t *testing.T) {
	rows := map[string]api.KindRule{}
	for _, r := range api.KindRules() {
		name := r.APIVersion + " " + r.Kind
		if _, twice := rows[name]; twice {
			t.Errorf("%s has two rows", name)
		}
		rows[name] = r
		switch {
		case r.Verdict != api.Acted && r.Verdict != api.Stored && r.Verdict != api.Refused:
			t.Errorf("%s has the verdict %q", name, r.Verdict)
		case r.Verdict != api.Acted && r.Why == "":
			t.Errorf("%s is %s without a reason", name, r.Verdict)
		}
		// What the table refuses, the decoder refuses, and only that.
		manifests, problems := decode("apiVersion: " + r.APIVersion + "\nkind: " + r.Kind + "\nmetadata: {name: a}\n")
		if r.Kind != api.ConfigKind && (len(manifests) == 1) == (r.Verdict == api.Refused) {
			t.Errorf("%s is %s, but: %v", name, r.Verdict, problems)
		}
		for _, p := range problems {
			if !strings.Contains(p.Reason, r.Kind) {
				t.Errorf("%s is refused without its name: %s", name, p)
			}
		}
	}
	for _, name := range kubernetesServes(t) {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s is in no row of api/kindrules.go", name)
		}
	}
}

// kubernetesServes reads the discovery document that Kubernetes keeps with its
// sources: each kind with the newest of its versions.
func kubernetesServes(t *testing.T) []string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("find the sources of Kubernetes: %v", err)
	}
	discovery := filepath.Join(strings.TrimSpace(string(dir)), "api", "discovery")
	var groups struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version   string
				Resources []struct {
					ResponseKind struct{ Kind string }
				}
			}
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(discovery, "aggregated_v2.json")), &groups); err != nil {
		t.Fatal(err)
	}
	newest := map[string]string{}
	for _, g := range groups.Items {
		for _, v := range g.Versions { // the best version first
			for _, r := range v.Resources {
				id := g.Metadata.Name + " " + r.ResponseKind.Kind
				if newest[id] == "" {
					newest[id] = g.Metadata.Name + "/" + v.Version + " " + r.ResponseKind.Kind
				}
			}
		}
	}
	var core struct{ Resources []struct{ Name, Kind string } }
	if err := json.Unmarshal(read(t, filepath.Join(discovery, "api__v1.json")), &core); err != nil {
		t.Fatal(err)
	}
	for _, r := range core.Resources {
		if !strings.Contains(r.Name, "/") {
			newest[" "+r.Kind] = "v1 " + r.Kind
		}
	}
	out := slices.Sorted(maps.Values(newest))
	if len(out) < 70 {
		t.Fatalf("Kubernetes serves only %v", out)
	}
	return out
}
