package syncer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/storetest"
	"headway.dev/headway/syncer/live"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func secret(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {k: %q}\n", name, value)
}

func namespaceFile(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
}

// levelled is the namespace team with a Pod Security level.
func levelled(mode, level string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {pod-security.kubernetes.io/" + mode + ": " + level + "}}\n"
}

// labelTeam gives the live namespace a level that no manifest declares.
func labelTeam(w *world) {
	ns := w.get("namespaces", "", "team").DeepCopyObject().(*corev1.Namespace)
	ns.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "baseline"}
	w.write(store.Update, ns)
}

// podFile is a pod in it.
func podFile(spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: team}\nspec: {" + spec + "containers: [{name: app, image: \"app:1\"}]}\n"
}

var inTeam = edit(app, "{name: web", "{name: web, namespace: team")

// with adds lines to app's container.
func with(lines string) string { return app + lines }

const readsSettings = "        envFrom: [{configMapRef: {name: settings}}]\n"

// one judges a second commit over a first, applied one.
type judged struct {
	before, after map[string]string
	trailers      []string
	edit          func(*world)
}

func (j judged) verdict(t *testing.T) *Verdict {
	t.Helper()
	w := newWorld(t)
	if j.before != nil {
		w.push(w.repo.add("c1", "", j.before))
		if st := w.status(); st.Applied != commitID("c1") {
			t.Fatalf("the first commit is refused: %+v", st)
		}
	}
	if j.edit != nil {
		j.edit(w)
		storetest.Settle(t, w.st)
	}
	parent := "c1"
	if j.before == nil {
		parent = ""
	}
	v, err := w.s.Judge(t.Context(), Candidate{Commit: w.repo.say(w.repo.add("c2", parent, j.after), j.trailers...)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// apiListens makes a node, and the API reached at it.
func apiListens(w *world) {
	w.write(store.Create, &corev1.Node{ObjectMeta: metaOf("", "n", nil), Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}}})
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}},
		Ports:       []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
	}
	w.write(store.Create, slice)
}

// TestEveryRule breaks each rule of the table once, and looks for what it says on
// the side of its severity.
func TestEveryRule(t *testing.T) {
	base := map[string]string{"a.yaml": configMap("a", "1")}
	two := map[string]string{"settings.yaml": configMap("settings", "1"), "web.yaml": with(readsSettings)}
	twelve := map[string]string{}
	for i := range 12 {
		twelve[fmt.Sprintf("%d.yaml", i)] = configMap(fmt.Sprintf("c%d", i), "1")
	}
	small := func(a Answer) func(*world) {
		return func(w *world) {
			w.s.cfg.Capacity = func(map[types.UID]bool, []Ask) ([]Answer, bool) { return []Answer{a}, true }
		}
	}
	seen := map[string]bool{}
	for _, tt := range []struct {
		rule string
		judged
		says string
	}{
		{ruleDeclaredTwice, judged{before: base, after: map[string]string{"a.yaml": configMap("a", "1"), "b.yaml": "\n" + configMap("a", "2")}},
			"b.yaml:4:12: metadata.name: ConfigMap default/a is already declared in a.yaml:1"},
		{ruleNamespace, judged{before: base, after: map[string]string{"a.yaml": edit(configMap("a", "1"), "{name: a}", "{name: a, namespace: lost}")}},
			`a.yaml:3:21: metadata.namespace: namespace "lost" does not exist: declare it`},
		{ruleConfigMap, judged{before: base, after: map[string]string{"web.yaml": with(readsSettings)}},
			"web.yaml:15:35: spec.template.spec.containers[0].envFrom[0].configMapRef.name: ConfigMap default/settings is neither in this commit nor in the cluster: declare it"},
		{ruleSecret, judged{before: base, after: map[string]string{"web.yaml": with("        env:\n        - name: P\n          valueFrom:\n            secretKeyRef: {name: db, key: k}\n")}},
			"web.yaml:18:28: spec.template.spec.containers[0].env[0].valueFrom.secretKeyRef.name: Secret default/db is neither in this commit nor in the cluster"},
		{ruleKey, judged{before: base, after: map[string]string{"s.yaml": secret("db", "x"), "web.yaml": with("        env:\n        - name: P\n          valueFrom:\n            secretKeyRef: {name: db, key: password}\n")}},
			`web.yaml:18:38: spec.template.spec.containers[0].env[0].valueFrom.secretKeyRef.key: Secret default/db has no key "password": add it there`},
		{ruleInUse, judged{before: two, after: map[string]string{"web.yaml": with(readsSettings)}},
			"web.yaml:15:35: spec.template.spec.containers[0].envFrom[0].configMapRef.name: ConfigMap default/settings is removed by this commit (it was settings.yaml:1), and Deployment default/web needs it: keep its manifest"},
		{ruleNewGround, judged{after: map[string]string{"web.yaml": with(readsSettings)}}, "web.yaml:15:35: spec.template.spec.containers[0].envFrom[0].configMapRef.name: ConfigMap default/settings is neither in this commit"},
		{ruleAccount, judged{before: base, after: map[string]string{"web.yaml": with("      serviceAccountName: robot\n")}}, "web.yaml:15:7: spec.template.spec.serviceAccountName: ServiceAccount default/robot is neither"},
		{rulePriorityClass, judged{before: base, after: map[string]string{"web.yaml": with("      priorityClassName: high\n")}}, "web.yaml:15:7: spec.template.spec.priorityClassName: PriorityClass high is neither"},
		{ruleSecurity, judged{before: base, after: map[string]string{"n.yaml": levelled("enforce", "baseline"), "p.yaml": podFile("hostNetwork: true, ")}},
			`p.yaml:4:1: spec: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`},
		{ruleSecurity, judged{before: map[string]string{"n.yaml": namespaceFile("team"), "web.yaml": inTeam}, after: map[string]string{"n.yaml": levelled("enforce", "restricted"), "web.yaml": inTeam}},
			`web.yaml:9:5: spec.template.spec: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "web"`},
		{ruleSecurity, judged{before: map[string]string{"n.yaml": namespaceFile("team")}, after: map[string]string{"n.yaml": namespaceFile("team"), "p.yaml": podFile("hostNetwork: true, ")}, edit: labelTeam},
			`p.yaml:4:1: spec: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`},
		{ruleSecurityWarned, judged{before: base, after: map[string]string{"n.yaml": levelled("warn", "restricted"), "web.yaml": inTeam}},
			`web.yaml:9:5: spec.template.spec: violates PodSecurity "restricted:latest"`},
		{rulePullSecret, judged{before: base, after: map[string]string{"web.yaml": with("      imagePullSecrets: [{name: hub}]\n")}}, "web.yaml:15:27: spec.template.spec.imagePullSecrets[0].name: Secret default/hub is neither"},
		{ruleAddress, judged{before: base, after: map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30080), "b.yaml": nodePort("b", 30080)}},
			"b.yaml:7:22: spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated: Service default/a, declared in a.yaml:1, has it"},
		{ruleBalancer, judged{before: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 80)}, after: map[string]string{"web.yaml": app, "a.yaml": balancer("a", 80), "b.yaml": balancer("b", 80)}},
			"b.yaml:7:12: spec.ports[0].port: Service default/a, declared in a.yaml:1, has port 80/TCP of the nodes, which are the load balancer: give this one another port"},
		{ruleAddress, judged{before: map[string]string{"web.yaml": app, "b.yaml": external("b", 80)}, after: map[string]string{"web.yaml": app, "b.yaml": external("b", 80), "a.yaml": external("a", 81) + "---\n" + external("c", 80)}},
			"a.yaml:15:32: spec.externalIPs[1]: Service default/b, declared in b.yaml:1, has port 80/TCP of 192.0.2.9: give this one another port or address"},
		{ruleAddress, judged{before: base, after: map[string]string{"web.yaml": app, "b.yaml": edit(external("b", 80), "192.0.2.9", "10.43.0.7")}},
			`b.yaml:7:32: spec.externalIPs[1]: Invalid value: "10.43.0.7": is in the range of the cluster IPs, 10.43.0.0/16`},
		{ruleAddress, judged{before: map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30080)}, after: map[string]string{"web.yaml": app, "a.yaml": nodePort("a", 30080), "b.yaml": manyPorts("b", 2768)}},
			"b.yaml:7:3: spec.ports: no node port of 30000-32767 is free: delete Services"},
		{ruleBalancer, judged{before: base, after: map[string]string{"web.yaml": app, "b.yaml": balancer("b", 6443)}, edit: apiListens},
			"b.yaml:7:12: spec.ports[0].port: the API listens on port 6443/TCP of the nodes, at 192.0.2.1:6443: agents and kubectl would reach the Service instead"},
		{ruleHidden, judged{before: base, after: map[string]string{"web.yaml": app, "b.yaml": balancer("b", 22)}, edit: apiListens},
			"b.yaml:7:12: spec.ports[0].port: on the nodes' addresses port 22/TCP is then this Service's"},
		{ruleHidden, judged{before: base, after: map[string]string{"web.yaml": with("        ports: [{containerPort: 80, hostPort: 8080}]\n"), "b.yaml": balancer("b", 8080)}},
			"b.yaml:7:12: spec.ports[0].port: pods of Deployment default/web, declared in web.yaml:1, have port 8080/TCP of their node as hostPort"},
		{ruleSelectsNothing, judged{before: base, after: map[string]string{"web.yaml": app, "s.yaml": edit(nodePort("s", 30080), "app: web", "app: web, tier: x")}},
			"s.yaml:5:3: spec.selector: app=web,tier=x matches no pod of namespace default, in this commit or in the cluster"},
		{ruleAutoscaled, judged{before: base, after: map[string]string{"app.yaml": app, "hpa.yaml": autoscaler}},
			"app.yaml:5:3: spec.replicas: HorizontalPodAutoscaler default/web (hpa.yaml:1) sets the replicas"},
		{ruleClaim, judged{before: base, after: map[string]string{"web.yaml": with("      volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n")}},
			"web.yaml:15:51: spec.template.spec.volumes[0].persistentVolumeClaim.claimName: PersistentVolumeClaim default/data is neither in this commit nor in the cluster"},
		{ruleDriver, judged{before: base, after: map[string]string{"c.yaml": strings.Replace(localClass, "headway.dev/local", "ebs.csi.aws.com", 1)}},
			"c.yaml:4:1: provisioner: no driver ebs.csi.aws.com is run: no volume is made for a claim of this class"},
		{ruleDriver, judged{before: base, after: map[string]string{"c.yaml": strings.Replace(localClass, "headway.dev/local", "ebs.csi.aws.com", 1), "d.yaml": claimFile}},
			`d.yaml:4:1: spec: StorageClass "local": no driver ebs.csi.aws.com is run`},
		{ruleNoClass, judged{before: base, after: map[string]string{"d.yaml": strings.Replace(claimFile, "spec: {", "spec: {storageClassName: gp3, ", 1)}},
			`d.yaml:4:8: spec.storageClassName: StorageClass "gp3" is neither in this commit nor in the cluster: the claim gets no volume unless`},
		{ruleNoClass, judged{before: base, after: map[string]string{"d.yaml": strings.Replace(setFile, "spec: {accessModes", "spec: {storageClassName: gp3, accessModes", 1)}},
			`spec.volumeClaimTemplates[0].spec.storageClassName: StorageClass "gp3" is neither`},
		{ruleOneNode, judged{before: base, after: map[string]string{"d.yaml": strings.Replace(claimFile, "ReadWriteOnce", "ReadWriteMany", 1)}},
			"d.yaml:4:47: spec.accessModes: ReadWriteMany of the class local: its volume is a folder on one node, so all its pods run on that node"},
		{ruleReserved, judged{before: base, after: map[string]string{"s.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: kubernetes}\nspec: {ports: [{port: 443}]}\n"}},
			"s.yaml:3:12: metadata.name: Service default/kubernetes is made by the cluster and cannot be declared: give it another name"},
		{ruleImmutable, judged{before: map[string]string{"web.yaml": app}, after: map[string]string{"web.yaml": edit(app, "app: web}", "app: web2}")}},
			"field is immutable; to have it deleted and made again, say so in the last paragraph of the commit message: Replace: Deployment/default/web"},
		{ruleDeletion, judged{before: twelve, after: map[string]string{"0.yaml": twelve["0.yaml"]}}, "would delete 11 objects of the 12 that the applied commit declares"},
		{rulePreciousDeletion, judged{before: map[string]string{"n.yaml": namespaceFile("team"), "a.yaml": configMap("a", "1")}, after: base}, "Allow-Delete: Namespace/team"},
		{ruleManifestLost, judged{before: map[string]string{"a.yaml": configMap("a", "1")}, after: map[string]string{"a.yaml": "# later\n"}}, "a.yaml: the applied commit declares ConfigMap default/a here, and now the file is no manifest: mend it"},
		{ruleMarker, judged{before: base, after: map[string]string{"s.yaml": secret("db", live.Differs)}},
			"s.yaml:4:14: data.k: this is the live ref's mark for a value that it does not show: write the value itself"},
		{ruleTrailer, judged{before: base, after: base, trailers: []string{"Allow-Delete: everything"}}, `commit c20000000000: Allow-Delete: "everything" is not understood and has no effect: write all, a number`},
		{ruleExternalName, judged{before: base, after: map[string]string{"s.yaml": externalName("192.0.2.7")}}, `s.yaml:4:28: spec.externalName: "192.0.2.7" is looked up as a name made of digits, not used as an address: declare a Service without a selector`},
		{ruleExternalName, judged{before: base, after: map[string]string{"s.yaml": externalName("db.")}}, `s.yaml:4:28: spec.externalName: "db" is looked up as a name of the top level, not in namespace default: write the whole name`},
		{ruleLimits, judged{before: base, after: map[string]string{"web.yaml": edit(frugal, "400m", "2"), "range.yaml": range1}}, "web.yaml:13:9: spec.template.spec.containers[0].resources: LimitRange bounds of namespace default forbids every pod of it"},
		{ruleLimitsLive, judged{before: base, after: map[string]string{"web.yaml": frugal}, edit: liveLimits}, "web.yaml:13:9: spec.template.spec.containers[0].resources: LimitRange by-hand, which this commit does not declare"},
		{ruleQuota, judged{before: base, after: map[string]string{"web.yaml": edit(frugal, "replicas: 3", "replicas: 4"), "quota.yaml": quota1}}, "web.yaml:5:3: spec.replicas: Deployment default/web: ResourceQuota team allows pods=3 in namespace default, and with 4 pods it asks for pods=4"},
		{ruleCapacityNow, judged{after: map[string]string{"web.yaml": app}, edit: small(Answer{Fit: 1, Why: "0/3 nodes are available: 3 Insufficient cpu."})}, "web.yaml:1:1: Deployment default/web: 2 of 3 new pods fit on no node: 0/3 nodes are available: 3 Insufficient cpu. Add nodes"},
		{ruleCapacityNever, judged{after: map[string]string{"web.yaml": app}, edit: small(Answer{Never: true, Why: "0/3 nodes are available: 3 Insufficient cpu."})}, "web.yaml:1:1: Deployment default/web: its pods could run on no node even if it were empty: 0/3 nodes are available: 3 Insufficient cpu. Lower what they ask for"},
		{ruleCapacityUnchecked, judged{after: map[string]string{"web.yaml": edit(app, "replicas: 3", "replicas: 2000")}, edit: small(Answer{})},
			"web.yaml:1:1: whether the nodes have room was not checked: this commit brings 2,000 new pods, and at most 1,000 are placed"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			seen[tt.rule] = true
			v := tt.verdict(t)
			expect(t, tt.rule, tt.says, v.Lines(), v.Warnings)
		})
	}

	// Of kinds that a manifest may not have yet.
	for _, tt := range []struct {
		rule    string
		changed []*api.Manifest
		check   func(*scene, *findings)
		says    string
	}{
		{ruleDeclaredElsewhere, nil, func(_ *scene, f *findings) {
			m := manifest(t, configMap("x", "1"))
			live := m.Object.DeepCopyObject().(api.Object)
			api.SetProvenance(live, api.Provenance{Source: "team", Path: "t.yaml", Line: 3, Commit: "c1"})
			_, problems := Plan(Observed{
				Source: "main", Desired: []*api.Manifest{m}, Live: map[store.Key]api.Object{keyOf(m): live}, Theirs: func(string) bool { return true },
			}, time.Now())
			for _, p := range problems {
				f.add(ruleDeclaredElsewhere, p)
			}
		}, "metadata.name: ConfigMap default/x is declared by source team already, in its t.yaml:3 at commit c1: an object may stand in one source only"},
		{ruleOutside, nil, func(_ *scene, f *findings) {
			w := newWorld(t, func(c *Config) { c.Source, c.Spec.Namespaces = "team", []string{"a", "b"} })
			for _, p := range w.s.limit(&Rendered{Manifests: []*api.Manifest{manifest(t, configMap("x", "1"))}}) {
				f.add(ruleOutside, p)
			}
		}, "source team may not write to namespace default: its entry in the configuration of the main source names a, b"},
		{ruleOutside, nil, func(_ *scene, f *findings) {
			w := newWorld(t, func(c *Config) { c.Source, c.Spec.Namespaces = "team", []string{"default"} })
			for _, p := range w.s.limit(&Rendered{Manifests: []*api.Manifest{manifest(t, external("x", 80)), manifest(t, balancer("b", 80))}}) {
				f.add(ruleOutside, p)
			}
		}, "spec.externalIPs: source team may not take addresses from the pods of other namespaces, which would reach this Service by them"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			seen[tt.rule] = true
			var f findings
			tt.check(&scene{desired: newDesired("c", "", Rendered{Manifests: append(tt.changed, manifest(t, app))}, nil), changed: tt.changed, live: newWorld(t).st}, &f)
			var lines []string
			for _, p := range f.problems {
				lines = append(lines, p.String())
			}
			expect(t, tt.rule, tt.says, lines, f.warnings)
		})
	}
	for _, r := range Rules() {
		if !seen[r.Name] {
			t.Errorf("rule %s has no test", r.Name)
		}
		delete(seen, r.Name)
	}
	for name := range seen {
		t.Errorf("rule %s is not in the table", name)
	}
}

// expect looks for words among the problems or the warnings, as the rule's
// severity says, and not among the others.
func expect(t *testing.T, rule, says string, problems []string, warned []api.Problem) {
	t.Helper()
	var warnings []string
	for _, w := range warned {
		warnings = append(warnings, w.String())
	}
	where, other := strings.Join(problems, "\n"), strings.Join(warnings, "\n")
	if severity(rule) == Warning {
		where, other = other, where
	}
	if !strings.Contains(where, says) {
		t.Errorf("no %q in\n%s\nthe other side says\n%s", says, where, other)
	}
	if strings.Contains(other, says) {
		t.Errorf("said on the wrong side:\n%s", other)
	}
}

// service is a manifest of a Service with this selector alone.
func service(name string, selector map[string]string) *api.Manifest {
	kind, _ := api.ResourceKind(api.Services())
	return &api.Manifest{Kind: kind, Path: "service.yaml", Line: 1, Object: &corev1.Service{ObjectMeta: metaOf("default", name, nil), Spec: corev1.ServiceSpec{Selector: selector}}}
}

func TestServiceSelects(t *testing.T) {
	w := newWorld(t)
	live := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rs", UID: "rs"}}
	live.Spec.Template.Labels = map[string]string{"app": "byhand"}
	made := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "rs-1", Labels: map[string]string{"app": "made"}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(live, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}}}
	w.write(store.Create, live)
	w.write(store.Create, made)
	w.settle()
	for _, tt := range []struct {
		selector map[string]string
		services string
		gone     bool
		selects  bool
	}{
		{selector: map[string]string{"app": "web"}, selects: true},
		{selector: map[string]string{"app": "byhand"}, selects: true},
		{selector: map[string]string{"app": "byhand"}, gone: true},
		{selector: map[string]string{"app": "made"}}, // its owner's template counts
		{selector: map[string]string{"app": "web", "x": "y"}},
		{selector: nil, selects: true}, // somebody else's endpoints
	} {
		svc := service("s", tt.selector)
		c := &scene{desired: newDesired("c", "", Rendered{Manifests: []*api.Manifest{svc, manifest(t, app)}}, nil), changed: []*api.Manifest{svc}, live: w.st, gone: map[store.Key]api.Provenance{}}
		if tt.gone {
			c.gone[store.KeyOf(live)] = api.Provenance{}
		}
		var f findings
		checkSelectors(c, &f)
		if got := len(f.warnings) == 0; got != tt.selects {
			t.Errorf("%v: %v", tt, f.warnings)
		}
	}
	// A workload whose labels move leaves a Service that did not change behind.
	svc := service("s", map[string]string{"app": "web"})
	moved := manifest(t, edit(app, "app: web}", "app: other}"))
	c := &scene{desired: newDesired("c", "", Rendered{Manifests: []*api.Manifest{svc, moved}}, nil), changed: []*api.Manifest{moved}, live: w.st}
	for _, tt := range []struct {
		step Step
		says int
	}{
		{Step{Verb: Update, Key: keyOf(moved), Live: manifest(t, app).Object, Op: store.Op{Object: moved.Object}}, 1},
		{Step{Verb: Update, Key: keyOf(moved), Live: moved.Object, Op: store.Op{Object: moved.Object}}, 0}, // its labels stay
		{Step{Verb: Delete, Key: key("deployments", "default", "gone"), Live: manifest(t, app).Object}, 1},
		{Step{Verb: Create, Key: keyOf(moved), Op: store.Op{Object: moved.Object}}, 0},
	} {
		c.steps = []Step{tt.step}
		var f findings
		checkSelectors(c, &f)
		if len(f.warnings) != tt.says {
			t.Errorf("%s %s: %v", tt.step.Verb, tt.step.Key, f.warnings)
		}
	}
}

func TestReferences(t *testing.T) {
	yes := true
	pod := &corev1.Pod{ObjectMeta: metaOf("team", "p", nil)}
	spec := &pod.Spec
	spec.ServiceAccountName = "robot"
	spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	spec.InitContainers = []corev1.Container{{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}}}}
	spec.Containers = []corev1.Container{{}, {
		EnvFrom: []corev1.EnvFromSource{{}, {ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "b"}, Optional: &yes}}},
		Env: []corev1.EnvVar{{Name: "x", Value: "y"},
			{ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, Key: "k"}}},
			{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "d"}, Key: "l", Optional: &yes}}}},
	}}
	spec.Volumes = []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "e"}, Items: []corev1.KeyToPath{{Key: "m"}, {Key: "n"}}}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "f"}}},
		{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "g"}}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "h"}, Items: []corev1.KeyToPath{{Key: "o"}}}}}}}},
		{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	want := `serviceaccounts/robot spec.serviceAccountName
secrets/hub spec.imagePullSecrets[0].name
secrets/a spec.initContainers[0].envFrom[0].secretRef.name
configmaps/b spec.containers[1].envFrom[1].configMapRef.name optional
configmaps/c spec.containers[1].env[1].valueFrom.configMapKeyRef.name k at spec.containers[1].env[1].valueFrom.configMapKeyRef.key
secrets/d spec.containers[1].env[2].valueFrom.secretKeyRef.name l at spec.containers[1].env[2].valueFrom.secretKeyRef.key optional
configmaps/e spec.volumes[0].configMap.name m at spec.volumes[0].configMap.items[0].key
configmaps/e spec.volumes[0].configMap.name n at spec.volumes[0].configMap.items[1].key
secrets/f spec.volumes[1].secret.secretName
configmaps/g spec.volumes[2].projected.sources[0].configMap.name
secrets/h spec.volumes[2].projected.sources[1].secret.name o at spec.volumes[2].projected.sources[1].secret.items[0].key`
	var got []string
	for _, r := range references(pod) {
		line := r.key.Resource + "/" + r.key.Name + " " + r.field
		if r.entry != "" {
			line += " " + r.entry + " at " + r.entryAt
		}
		if r.optional {
			line += " optional"
		}
		if r.key.Namespace != "team" {
			line += " in " + r.key.Namespace
		}
		got = append(got, line)
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestReferencesThatAreFine(t *testing.T) {
	byHand := func(w *world) {
		w.write(store.Create, &corev1.ConfigMap{ObjectMeta: metaOf("default", "settings", nil), Data: map[string]string{"k": "v"}})
		w.settle()
	}
	keyed := "        env:\n        - name: P\n          valueFrom:\n            configMapKeyRef: {name: settings, key: k}\n"
	base := map[string]string{"a.yaml": configMap("a", "1")}
	for name, j := range map[string]judged{
		"declared":                {before: base, after: map[string]string{"s.yaml": configMap("settings", "1"), "web.yaml": with(readsSettings)}},
		"live":                    {before: base, after: map[string]string{"web.yaml": with(readsSettings)}, edit: byHand},
		"live with the key":       {before: base, after: map[string]string{"web.yaml": with(keyed)}, edit: byHand},
		"optional":                {before: base, after: map[string]string{"web.yaml": with(edit(readsSettings, "settings}", "settings, optional: true}"))}},
		"optional key":            {before: base, after: map[string]string{"web.yaml": with(edit(keyed, "key: k}", "key: other, optional: true}"))}, edit: byHand},
		"the default account":     {before: base, after: map[string]string{"web.yaml": with("      serviceAccountName: default\n")}},
		"not changed and missing": {before: map[string]string{"web.yaml": with(readsSettings), "a.yaml": configMap("a", "1")}, after: map[string]string{"web.yaml": with(readsSettings), "a.yaml": configMap("a", "2")}},
	} {
		if v := j.verdict(t); !v.OK() || len(v.Warnings) > 0 {
			t.Errorf("%s: %v %v", name, v.Lines(), v.Warnings)
		}
	}
	// Another namespace's does not do, and it is said which.
	v := judged{before: map[string]string{"n.yaml": namespaceFile("team"), "s.yaml": edit(configMap("settings", "1"), "{name: settings}", "{name: settings, namespace: team}")},
		after: map[string]string{"n.yaml": namespaceFile("team"), "s.yaml": edit(configMap("settings", "1"), "{name: settings}", "{name: settings, namespace: team}"), "web.yaml": with(readsSettings)}}.verdict(t)
	if lines := strings.Join(v.Lines(), "\n"); v.OK() || !strings.Contains(lines, `the one declared in s.yaml:1 is in namespace "team", and pods see only their own`) {
		t.Errorf("%s", lines)
	}
	// One that is going away does not do either.
	going := judged{before: base, after: map[string]string{"web.yaml": with(readsSettings)}, edit: func(w *world) {
		byHand(w)
		w.change("configmaps", "default", "settings", func(o api.Object) {
			at := metav1.NewTime(w.now)
			o.SetDeletionTimestamp(&at)
			o.SetFinalizers([]string{"x/y"})
		})
		w.settle()
	}}
	if v := going.verdict(t); v.OK() {
		t.Error("a ConfigMap that is being deleted counts as there")
	}
}
