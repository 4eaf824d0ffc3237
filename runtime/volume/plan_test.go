package volume

import (
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// source has a ConfigMap "cm" and a Secret "s".
func source() Source {
	return Source{
		ConfigMap: func(name string) *corev1.ConfigMap {
			if name != "cm" {
				return nil
			}
			return &corev1.ConfigMap{Data: map[string]string{"a": "1", "b.txt": "2"}, BinaryData: map[string][]byte{"raw": {0, 1}}}
		},
		Secret: func(name string) *corev1.Secret {
			if name != "s" {
				return nil
			}
			return &corev1.Secret{Data: map[string][]byte{"token": []byte("hunter2"), "user": []byte("ana")}}
		},
		Field: func(path string) (string, error) {
			return map[string]string{"metadata.labels['b']": "2", "metadata.annotations['k/n']": "x\ny", "metadata.uid": "u-1", "metadata.name": "web", "metadata.namespace": "ns"}[path], nil
		},
		Resource: func(ref *corev1.ResourceFieldSelector) (string, error) {
			if ref.Resource == "limits.cpu" {
				return "2", nil
			}
			return "", errors.New("resource of nobody")
		},
		Memory: 1 << 30,
	}
}

func podWith(sources ...corev1.VolumeSource) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "ns", UID: "u-1", Labels: map[string]string{"b": "2", "a": `say "hi"`}, Annotations: map[string]string{"k/n": "x\ny"},
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for i, s := range sources {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v" + string(rune('0'+i)), VolumeSource: s})
	}
	return pod
}

func ref(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func secretOf(name string, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name, Items: items}}
}

func configOf(name string, items ...corev1.KeyToPath) corev1.VolumeSource {
	return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref(name), Items: items}}
}

func optional(s corev1.VolumeSource) corev1.VolumeSource {
	if s.Secret != nil {
		s.Secret.Optional = new(true)
	}
	if s.ConfigMap != nil {
		s.ConfigMap.Optional = new(true)
	}
	return s
}

func field1(p, of string) corev1.DownwardAPIVolumeFile {
	return corev1.DownwardAPIVolumeFile{Path: p, FieldRef: &corev1.ObjectFieldSelector{FieldPath: of}}
}

func TestWantedContent(t *testing.T) {
	resourceFile := corev1.DownwardAPIVolumeFile{Path: "cpu", Mode: new(int32(0o400)), ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}}
	for what, tc := range map[string]struct {
		volume corev1.VolumeSource
		want   map[string]string // path to "mode text"
	}{
		"all keys of a configmap": {configOf("cm"), map[string]string{"a": "644 1", "b.txt": "644 2", "raw": "644 \x00\x01"}},
		"items, modes and folders": {
			configOf("cm", corev1.KeyToPath{Key: "a", Path: "x/./y//z", Mode: new(int32(0o755))}, corev1.KeyToPath{Key: "raw", Path: "r"}),
			map[string]string{"x/y/z": "755 1", "r": "644 \x00\x01"},
		},
		"default mode": {
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: new(int32(0o400))}},
			map[string]string{"token": "400 hunter2", "user": "400 ana"},
		},
		"optional and absent":    {optional(configOf("none")), map[string]string{}},
		"optional, a key absent": {optional(secretOf("s", corev1.KeyToPath{Key: "none", Path: "n"}, corev1.KeyToPath{Key: "user", Path: "u"})), map[string]string{"u": "644 ana"}},
		"optional secret absent": {optional(secretOf("none", corev1.KeyToPath{Key: "none", Path: "n"})), map[string]string{}},
		"the pod itself": {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			field1("labels", "metadata.labels"), field1("notes", "metadata.annotations"), field1("one", "metadata.labels['b']"),
			field1("note", "metadata.annotations['k/n']"), field1("id", "metadata.uid"), field1("name", "metadata.name"), field1("ns", "metadata.namespace"), resourceFile,
		}}}, map[string]string{
			"labels": "644 a=\"say \\\"hi\\\"\"\nb=\"2\"", "notes": "644 k/n=\"x\\ny\"", "one": "644 2", "note": "644 x\ny", "id": "644 u-1", "name": "644 web", "ns": "644 ns", "cpu": "400 2",
		}},
		"projected: the later wins": {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o440)), Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("cm"), Items: []corev1.KeyToPath{{Key: "a", Path: "user"}, {Key: "a", Path: "a"}}}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: ref("s"), Items: []corev1.KeyToPath{{Key: "user", Path: "user", Mode: new(int32(0o600))}}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{field1("me/name", "metadata.name")}}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("none"), Optional: new(true)}},
		}}}, map[string]string{"a": "440 1", "user": "600 ana", "me/name": "440 web"}},
	} {
		got, err := Wanted(podWith(tc.volume), source())
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if got[0].Kind != Content || len(got[0].Files) != len(tc.want) {
			t.Errorf("%s: %+v", what, got[0])
		}
		for p, want := range tc.want {
			mode, text, _ := strings.Cut(want, " ")
			f, ok := got[0].Files[p]
			if !ok || string(f.Data) != text || strings.TrimPrefix(octal(uint32(f.Mode)), "0") != mode {
				t.Errorf("%s: %s is %o %q", what, p, f.Mode, f.Data)
			}
		}
	}
}

func octal(n uint32) string {
	return string([]byte{'0' + byte(n>>6&7), '0' + byte(n>>3&7), '0' + byte(n&7)})
}

func TestWantedErrors(t *testing.T) {
	at := func(p string) corev1.VolumeSource { return configOf("cm", corev1.KeyToPath{Key: "a", Path: p}) }
	for what, tc := range map[string]struct {
		volume  corev1.VolumeSource
		want    string
		missing bool
	}{
		"configmap":      {configOf("none"), `configmap "none" not found`, true},
		"secret":         {secretOf("none"), `secret "none" not found`, true},
		"key":            {configOf("cm", corev1.KeyToPath{Key: "x", Path: "x"}), "configmap references non-existent config key: x", true},
		"secret's key":   {secretOf("s", corev1.KeyToPath{Key: "x", Path: "x"}), "references non-existent secret key: x", true},
		"field":          {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{field1("f", "spec.nodeName")}}}, "unsupported fieldPath: spec.nodeName", false},
		"resource":       {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "f", ResourceFieldRef: &corev1.ResourceFieldSelector{}}}}}, "resource of nobody", false},
		"neither":        {corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "f"}}}}, "names neither a field nor a resource", false},
		"type":           {corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}, "not mounted by this version", false},
		"huge pages":     {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: "HugePages"}}, "requests no huge pages", false},
		"projection":     {corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{}}}}, "not made by this version", false},
		"up":             {at("a/../../b"), "must not contain '..'", false},
		"up alone":       {at(".."), "must not contain '..'", false},
		"absolute":       {at("/etc/passwd"), "must be relative", false},
		"empty":          {at(""), "must not be empty", false},
		"ours":           {at("..data"), "must not start with '..'", false},
		"ours, hidden":   {at("./..data"), "must not start with '..'", false},
		"no name":        {at("./."), "names no file", false},
		"long":           {at(strings.Repeat("a/", 2100) + "a"), "4096 characters", false},
		"long name":      {at(strings.Repeat("a", 256)), "255 characters", false},
		"file or folder": {configOf("cm", corev1.KeyToPath{Key: "a", Path: "x"}, corev1.KeyToPath{Key: "a", Path: "x/y"}), "x is a file and cannot hold x/y", false},
	} {
		_, err := Wanted(podWith(tc.volume), source())
		var e *Error
		if !errors.As(err, &e) || e.Missing != tc.missing || e.Volume != "v0" {
			t.Errorf("%s: %#v", what, err)
			continue
		}
		if want := `MountVolume.SetUp failed for volume "v0" : `; !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a value is in the error (R14)", what)
		}
	}
}

// No path that is accepted leads out of its volume or to a name that is ours.
func TestPathsStayInside(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "..", ".", "", "..data", "b.c", "...", "..2026_01", " ", "é"})
	rapid.Check(t, func(t *rapid.T) {
		p := strings.Join(rapid.SliceOfN(part, 0, 6).Draw(t, "parts"), "/")
		checkedPath(t, p)
	})
}

func FuzzPath(f *testing.F) {
	for _, p := range []string{"a", "../a", "/a", "a/../b", "./..data", "a\x00b", strings.Repeat("a", 300)} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) { checkedPath(t, p) })
}

func checkedPath(t interface{ Fatalf(string, ...any) }, p string) {
	if checkPath(p) != nil {
		if clean(p) != p {
			t.Fatalf("%q is refused but was changed", p)
		}
		return
	}
	c := clean(p)
	if path.IsAbs(c) || c == "." || strings.HasPrefix(c, "..") || checkPath(c) != nil {
		t.Fatalf("%q became %q", p, c)
	}
}

// The least of the node's memory, the containers' limits if all have one, and the
// volume's own limit.
func TestMemorySize(t *testing.T) {
	limit := func(q string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse(q)}}}
	}
	for _, tc := range []struct {
		own        string
		containers []corev1.Container
		want       int64
	}{
		{"", []corev1.Container{{}}, 1 << 30},
		{"64Mi", []corev1.Container{{}}, 64 << 20},
		{"64Mi", []corev1.Container{limit("16Mi"), limit("16Mi")}, 32 << 20},
		{"8Mi", []corev1.Container{limit("16Mi")}, 8 << 20},
		{"", []corev1.Container{limit("16Mi"), {}}, 1 << 30},
		{"4Gi", []corev1.Container{{}}, 1 << 30},
	} {
		v := &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		if tc.own != "" {
			v.SizeLimit = new(resource.MustParse(tc.own))
		}
		pod := podWith(corev1.VolumeSource{EmptyDir: v})
		pod.Spec.Containers = tc.containers
		got, err := Wanted(pod, source())
		if err != nil || got[0].Kind != Memory || got[0].Size != tc.want {
			t.Errorf("%q: %+v, %v", tc.own, got, err)
		}
	}
}

// A hostPath's files are never given to the pod's group; all other volumes' are.
func TestGroupOfVolumes(t *testing.T) {
	pod := podWith(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x", Type: new(corev1.HostPathFile)}}, configOf("cm"))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(7))}
	got, err := Wanted(pod, source())
	if err != nil || *got[0].Group != 7 || got[1].Group != nil || *got[2].Group != 7 || got[1].Path != "/x" || got[1].Type != corev1.HostPathFile {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestSubPath(t *testing.T) {
	expand := func(s string) (string, error) {
		if s == "bad" {
			return "", errors.New("missing value for \"X\"")
		}
		return strings.ReplaceAll(s, "$(N)", "web"), nil
	}
	for _, tc := range []struct {
		mount     corev1.VolumeMount
		want, err string
	}{
		{corev1.VolumeMount{}, "", ""},
		{corev1.VolumeMount{SubPath: "a/b"}, "a/b", ""},
		{corev1.VolumeMount{SubPath: "$(N)"}, "$(N)", ""},
		{corev1.VolumeMount{SubPathExpr: "logs/$(N)"}, "logs/web", ""},
		{corev1.VolumeMount{SubPathExpr: "/$(N)"}, "", "must not be an absolute path"},
		{corev1.VolumeMount{SubPathExpr: "a/../$(N)"}, "", "must not contain '..'"},
		{corev1.VolumeMount{SubPathExpr: "bad"}, "", "missing value"},
		{corev1.VolumeMount{SubPathExpr: "$(N)/../x"}, "", "`$(N)/../x`"}, // what N holds may be secret (R14)
	} {
		got, err := SubPath(&tc.mount, expand)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%+v: %q, %v", tc.mount, got, err)
		}
	}
}

func TestMountOfAPath(t *testing.T) {
	all := []*mountinfo.Info{{Mountpoint: "/"}, {Mountpoint: "/a b", Optional: "shared:7"}, {Mountpoint: "/c", Optional: "master:7 propagate_from:2"}}
	if !tagged(all[1], "shared:") || tagged(all[1], "master:") || !tagged(all[2], "master:") || tagged(all[0], "shared:") {
		t.Error("tags")
	}
	for at, want := range map[string]string{"/a b/x": "/a b", "/a bc": "/", "/c": "/c", "/": "/"} {
		if on := mountOf(all, at); on.Mountpoint != want {
			t.Errorf("%s is on %s", at, on.Mountpoint)
		}
	}
}
