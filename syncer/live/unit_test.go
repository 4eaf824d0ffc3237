package live_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/syncer/live"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const shop = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {tier: front}
  finalizers: [example.com/a, example.com/b]
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {mine: "yes"}}
    spec:
      nodeSelector: {disk: ssd}
      tolerations: [{key: a, operator: Exists}]
      containers:
      - name: web
        image: web:1
        args: [a, "1"]
        env: [{name: A, value: x}, {name: B, value: "1"}, {name: C, value: z}]
        envFrom:
        - configMapRef: {name: settings}
        resources: {limits: {cpu: 1000m}}
        ports:
        - {containerPort: 53, protocol: TCP}
        - {containerPort: 53, protocol: UDP}
      - name: side
        image: side:1
      volumes:
      - {name: tmp, emptyDir: {}}
      - {name: conf, secret: {secretName: cert}}
`

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {mode: fast, size: \"1\"}\n"

func everything(d *appsv1.Deployment) {
	d.Spec.Replicas = new(int32(5))
	d.Labels["tier"] = "1"
	pod := &d.Spec.Template
	pod.Annotations["mine"] = "no"
	pod.Spec.NodeSelector = map[string]string{"zone": "b"}
	pod.Spec.Tolerations = nil
	c := &pod.Spec.Containers[0]
	c.Image = "web@sha256:" + strings.Repeat("ab", 32)
	c.Args = []string{"a", "true", "null"}
	c.Env = []corev1.EnvVar{{Name: "A", Value: "x"}, {Name: "C", Value: "0x1"}}
	c.Resources.Limits = corev1.ResourceList{"cpu": quantity("2")}
	c.Ports = c.Ports[1:]
	c.Ports[0].Name = "undeclared"
	pod.Spec.Containers = pod.Spec.Containers[:1]
	pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}}
}

func scale(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(5)) }

// TestTreeOfKustomizations writes the drift of what kustomizations make; written
// checks with the ordinary kustomize that the result makes what is live.
func TestTreeOfKustomizations(t *testing.T) {
	type objects = map[string]func(api.Object) // by key; nil: deleted
	deployment := func(edit func(*appsv1.Deployment)) func(api.Object) {
		return func(obj api.Object) { edit(obj.(*appsv1.Deployment)) }
	}
	configMap := func(obj api.Object) {
		c := obj.(*corev1.ConfigMap)
		c.Data["mode"] = "slow\n\nand steady\n"
		delete(c.Data, "size")
	}
	for name, tt := range map[string]struct {
		files files
		units []string
		live  objects
		diff  string // of the kustomizations
		patch string // parts of the patches
	}{
		"the root, everything at once": {
			files{"kustomization.yaml": "# mine\nresources: # all\n- web.yaml\n- settings.yaml\n", "web.yaml": shop, "settings.yaml": settings}, []string{"."},
			objects{"Deployment default/web": deployment(everything), "ConfigMap default/settings": configMap},
			"kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", `
        - name: C
          value: "0x1"
        image: web@sha256:abababababababababababababababababababababababababababababababab
        ports:
        - $patch: replace
        - containerPort: 53
          protocol: UDP
        resources:
          limits:
            cpu: "2"
      - name: side
        $patch: delete
      nodeSelector:
        disk: null
        zone: b
      tolerations: null
      volumes:
      - name: tmp
        emptyDir: null
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
data:
  mode: |
    slow

    and steady
  size: null
`,
		},
		"one number": {
			files{"web/kustomization.yml": "resources: [web.yaml]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(scale)},
			"web/kustomization.yml\n+patches:\n+- path: headway-live.yaml\n",
			"# Written by Headway: what is live and not as it is declared.\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 5\n",
		},
		"patches that are there, in a block": {
			files{"web/Kustomization": "resources: [web.yaml]\npatches:\n  # first\n  - path: p.yaml # p\nnamespace: shop\n", "web/web.yaml": shop, "web/p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 4}\n"}, []string{"web"},
			objects{"Deployment shop/web": deployment(scale)},
			"web/Kustomization\n+  - path: headway-live.yaml\n", "  replicas: 5\n",
		},
		"patches that are there, in brackets, and CRLF": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\r\npatches: [{path: p.yaml}] # p\r\n", "web/web.yaml": shop, "web/p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 4}\n"}, []string{"web"},
			objects{"Deployment default/web": deployment(scale)},
			"web/kustomization.yaml\n-patches: [{path: p.yaml}] # p\r\n+patches: [{path: p.yaml}, {path: headway-live.yaml}] # p\r\n", "  replicas: 5\n",
		},
		"prefix, suffix, namespace, labels": {
			files{"prod/kustomization.yaml": "namePrefix: p-\nnameSuffix: -s\nnamespace: prod\nlabels: [{pairs: {team: x}, includeSelectors: true}]\nresources: [../base]\n", "base/kustomization.yaml": "namePrefix: b-\nresources: [web.yaml, settings.yaml]\n", "base/web.yaml": shop, "base/settings.yaml": settings}, []string{"prod"},
			objects{"Deployment prod/p-b-web-s": deployment(everything), "ConfigMap prod/p-b-settings-s": configMap},
			"prod/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "  name: b-web\n",
		},
		"a base with a namespace, used by two overlays": {
			files{
				"a/kustomization.yaml": "namespace: a\nresources: [../base]\n", "b/kustomization.yaml": "namespace: b\nresources: [../base]\n",
				"base/kustomization.yaml": "namespace: base\nresources: [web.yaml]\n", "base/web.yaml": shop,
			}, []string{"a", "b"},
			objects{"Deployment b/web": deployment(scale)},
			"b/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "  name: web\n",
		},
		"a base used twice by one": {
			files{
				"all/kustomization.yaml": "resources: [../a, ../b]\n", "a/kustomization.yaml": "namePrefix: a-\nresources: [../base]\n", "b/kustomization.yaml": "namePrefix: b-\nresources: [../base]\n",
				"base/kustomization.yaml": "resources: [web.yaml]\n", "base/web.yaml": shop,
			}, []string{"all"},
			objects{"Deployment default/b-web": deployment(scale), "Deployment default/a-web": nil},
			"all/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "  name: b-web\n",
		},
		"replicas and images have the last word": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\nreplicas: [{name: web, count: 4}]\nimages: [{name: web, newTag: '2'}]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(everything)},
			"web/kustomization.yaml\n+transformers:\n+- headway-live.yaml\n", "kind: PatchTransformer\n",
		},
		"a label that the kustomization gives": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\nlabels:\n- pairs: {team: x}\ntransformers: []\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(func(d *appsv1.Deployment) { d.Labels["team"] = "y" })},
			"web/kustomization.yaml\n-transformers: []\n+transformers: [headway-live.yaml]\n", "path: /metadata/labels/team\n",
		},
		"lines in a label that the kustomization gives": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\ncommonAnnotations: {team: x}\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(func(d *appsv1.Deployment) { d.Annotations["team"] = "a: b\n# c\n" })},
			"web/kustomization.yaml\n+transformers:\n+- headway-live.yaml\n", "path: /metadata/annotations/team\n",
		},
		"generated settings keep their name": {
			files{"web/kustomization.yaml": "namePrefix: p-\nnamespace: prod\nresources: [web.yaml]\nconfigMapGenerator:\n- name: settings\n  literals: [mode=fast, size=1]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"ConfigMap prod/p-settings-#": configMap, "Deployment prod/p-web": deployment(scale)},
			"web/kustomization.yaml\n+transformers:\n+- headway-live.yaml\n", "allowNameChange: true\n",
		},
		"generated settings that are deleted, and the reference stays": {
			files{"web/kustomization.yaml": "nameSuffix: -s\nresources: [web.yaml]\nconfigMapGenerator:\n- name: settings\n  literals: [mode=fast]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"ConfigMap default/settings-s-#": nil},
			"web/kustomization.yaml\n+transformers:\n+- headway-live.yaml\n", "$patch: delete\n",
		},
		"deleted": {
			files{"web/kustomization.yaml": "resources: [web.yaml, settings.yaml]\n", "web/web.yaml": shop, "web/settings.yaml": settings}, []string{"web"},
			objects{"Deployment default/web": nil, "ConfigMap default/settings": configMap},
			"web/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "$patch: delete\n",
		},
		"an order": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(func(d *appsv1.Deployment) {
				slices.Reverse(d.Spec.Template.Spec.Containers)
				slices.Reverse(d.Spec.Template.Spec.Containers[1].Env)
			})},
			"web/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "$patch: replace\n",
		},
		"a live ref that was taken over": {
			files{
				"web/kustomization.yaml": "resources: [web.yaml]\npatches:\n- path: headway-live.yaml\n", "web/web.yaml": shop,
				"web/headway-live.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 4}\n",
			}, []string{"web"},
			objects{"Deployment default/web": deployment(scale)},
			"web/kustomization.yaml\n+- path: headway-live-2.yaml\n", "  replicas: 5\n",
		},
		"replacements": {
			files{"web/kustomization.yaml": "resources: [web.yaml, settings.yaml]\nreplacements:\n- source: {kind: ConfigMap, name: settings, fieldPath: data.mode}\n  targets:\n  - select: {kind: Deployment}\n    fieldPaths: [metadata.labels.tier]\n", "web/web.yaml": shop, "web/settings.yaml": settings}, []string{"web"},
			objects{"ConfigMap default/settings": configMap},
			"web/kustomization.yaml\n+transformers:\n+- headway-live.yaml\n", "path: /data/mode\n",
		},
		"a component": {
			files{
				"web/kustomization.yaml": "components: [../c]\nresources: [web.yaml]\n", "web/web.yaml": shop,
				"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n- target: {kind: Deployment}\n  patch: '[{\"op\": \"replace\", \"path\": \"/spec/replicas\", \"value\": 9}]'\n",
			}, []string{"web"},
			objects{"Deployment default/web": deployment(scale)},
			"web/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "  replicas: 5\n",
		},
		"what no merge patch can do": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(func(d *appsv1.Deployment) { d.Finalizers = d.Finalizers[1:] })},
			"web/kustomization.yaml\n+transformers:\n+- headway-live.yaml\n", "path: /metadata/finalizers\n",
		},
		"the second container": {
			files{"web/kustomization.yaml": "resources: [web.yaml]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[1].Image = "side:2" })},
			"web/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "      containers:\n      - name: web\n      - name: side\n        image: side:2\n",
		},
		"notes about the build": {
			files{"web/kustomization.yaml": "buildMetadata: [originAnnotations]\nresources: [web.yaml]\n", "web/web.yaml": shop}, []string{"web"},
			objects{"Deployment default/web": deployment(scale)},
			"web/kustomization.yaml\n+patches:\n+- path: headway-live.yaml\n", "  replicas: 5\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			all := tt.files.declares(t, tt.units...)
			liveObjects := map[string]api.Object{}
			for name, edit := range tt.live {
				i := slices.IndexFunc(all, func(m *api.Manifest) bool { // the hash of a name is not ours to know
					stem, hashed := strings.CutSuffix(name, "#")
					return key(m) == name || hashed && strings.HasPrefix(key(m), stem)
				})
				if i < 0 {
					t.Fatalf("no %s", name)
				}
				liveObjects[key(all[i])] = nil
				if edit != nil {
					obj := copied(all[i].Object)
					edit(obj)
					liveObjects[key(all[i])] = obj
				}
			}
			changed := written(t, tt.files, tt.units, liveObjects)
			kustomizations, patches := map[string][]byte{}, ""
			for path, data := range changed {
				if _, old := tt.files[path]; old {
					kustomizations[path] = data
				} else {
					patches += string(data)
				}
			}
			if got := diffOf(tt.files, kustomizations); got != tt.diff {
				t.Errorf("got\n%s\nwant\n%s", got, tt.diff)
			}
			if !strings.Contains(patches, strings.TrimPrefix(tt.patch, "\n")) {
				t.Errorf("patches\n%s\nwithout\n%s", patches, tt.patch)
			}
		})
	}
}

// TestR14_UnitOfSecrets looks for the live value in what is written of a Secret
// that kustomize makes.
func TestR14_UnitOfSecrets(t *testing.T) {
	f := files{"kustomization.yaml": "secretGenerator:\n- name: gen\n  literals: [a=written]\nresources: [s.yaml]\n", "s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: plain}\nstringData: {b: written}\n"}
	all := f.declares(t, ".")
	liveObjects := map[string]api.Object{}
	for _, m := range all {
		s := copied(m.Object.(*corev1.Secret))
		for k := range s.Data {
			s.Data[k] = []byte("really live")
		}
		liveObjects[key(m)] = s
	}
	changed := written(t, f, []string{"."}, liveObjects)
	text := string(changed["headway-live.yaml"])
	if strings.Contains(text, "really live") || strings.Contains(text, "cmVhbGx5IGxpdmU") || strings.Contains(text, "written") {
		t.Errorf("tells a value: %s", text)
	}
	now := f.with(changed).declares(t, ".")
	for _, m := range now {
		for k, v := range m.Object.(*corev1.Secret).Data {
			if !live.IsMarker(v) {
				t.Errorf("%s: %s is %q", key(m), k, v)
			}
		}
	}
}

// TestTreeWritesWhatItCanOfAUnit has a drift that no patch can make true: the live
// reference is the name of another object before it gets its prefix.
func TestTreeWritesWhatItCanOfAUnit(t *testing.T) {
	f := files{
		"web/kustomization.yaml": "namePrefix: p-\nresources: [web.yaml, settings.yaml, other.yaml]\n", "web/web.yaml": shop,
		"web/settings.yaml": settings, "web/other.yaml": strings.Replace(settings, "settings", "other", 1),
	}
	all := f.declares(t, "web")
	var drifts []*live.Drift
	for _, m := range all {
		obj := copied(m.Object)
		switch o := obj.(type) {
		case *appsv1.Deployment:
			o.Spec.Template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name = "other"
		case *corev1.ConfigMap:
			o.Data["mode"] = "slow"
		}
		drifts = append(drifts, compare(t, m, obj))
	}
	elsewhere := compare(t, manifests(t, "x.yaml", settings)[0], nil)
	elsewhere.Manifest.Unit = "web"
	nowhere := compare(t, manifests(t, "x.yaml", settings)[0], nil)
	nowhere.Manifest.Unit = "gone"
	changed, problems, err := live.Tree(f, append(drifts, elsewhere, nowhere))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"x.yaml:1: the live values of ConfigMap default/settings cannot be written: the applied commit has no kustomization in gone",
		"x.yaml:1: the live values of ConfigMap default/settings cannot be written: the kustomization of the applied commit does not make it",
		"web/kustomization.yaml:1: the live values of Deployment default/p-web cannot be written: kustomize does not give the live values, whatever the patch",
	}
	if len(problems) != len(want) {
		t.Fatalf("problems %v", problems)
	}
	for i, p := range problems {
		if p.String() != want[i] {
			t.Errorf("got  %s\nwant %s", p, want[i])
		}
	}
	if patch := string(changed["web/headway-live.yaml"]); strings.Count(patch, "mode: slow") != 2 {
		t.Errorf("patch\n%s", patch)
	}
}

// unreadable is a tree that cannot be read from the second build on.
type unreadable struct {
	files
	builds *int
	last   int
}

var errUnread = errors.New("the disk is gone")

func (b unreadable) Build(unit string, with map[string][]byte) ([]byte, string, error) {
	if *b.builds++; *b.builds > b.last {
		return nil, "", errUnread
	}
	return b.files.Build(unit, with)
}

// TestABuildThatCannotBeReadIsNoVerdict: the drift is not left out of the live ref.
func TestABuildThatCannotBeReadIsNoVerdict(t *testing.T) {
	f := files{"kustomization.yaml": "resources: [c.yaml]\n", "c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: \"1\"}\n"}
	m := f.declares(t, ".")[0]
	obj := copied(m.Object.(*corev1.ConfigMap))
	obj.Data["a"] = "2"
	d, err := live.Compare(m, obj)
	if err != nil {
		t.Fatal(err)
	}
	for last := range 2 {
		changed, problems, err := live.Tree(unreadable{f, new(int), last}, []*live.Drift{d})
		if !errors.Is(err, errUnread) || len(problems)+len(changed) > 0 {
			t.Errorf("%d builds: %v %v %v", last, changed, problems, err)
		}
	}
	if _, problems, err := live.Tree(unreadable{f, new(int), 2}, []*live.Drift{d}); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
