package api_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"headway.dev/headway/api"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKinds(t *testing.T) {
	for _, k := range api.Kinds() {
		obj := k.New()
		if got, ok := api.KindOf(obj); !ok || got.GroupVersionKind != k.GroupVersionKind {
			t.Errorf("KindOf(%T) = %v", obj, got.GroupVersionKind)
		}
		if got, ok := api.KindFor(k.GroupVersionKind); !ok || got.Resource != k.Resource {
			t.Errorf("KindFor(%v) = %v", k.GroupVersionKind, got)
		}
		if got, ok := api.ResourceKind(k.GroupResource()); !ok || got.Kind != k.Kind {
			t.Errorf("ResourceKind(%v) = %v", k.GroupResource(), got)
		}
		obj.SetName("x")
		obj.SetLabels(map[string]string{"a": "b"})
		data, err := json.Marshal(obj)
		if err != nil {
			t.Fatal(err)
		}
		again := k.New()
		if err := json.Unmarshal(data, again); err != nil || !reflect.DeepEqual(obj, again) {
			t.Errorf("%s does not survive JSON: %v", k.Kind, err)
		}
		copied := obj.DeepCopyObject().(api.Object)
		copied.GetLabels()["a"] = "c"
		if obj.GetLabels()["a"] != "b" {
			t.Errorf("DeepCopyObject of %s shares memory", k.Kind)
		}
		if k.New().GetName() != "" {
			t.Errorf("the prototype of %s was changed", k.Kind)
		}
	}
}

func TestR12_UnsupportedFieldsAreNamed(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    image: i\n"
	for text, want := range map[string]string{
		pod: "",
		pod + "    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n    ports: [{containerPort: 1, hostPort: 2}]\n  nodeSelector: {a.b/c: d}\n  tolerations: [{operator: Exists}]\n": "",
		pod + "    securityContext: {runAsUser: 1, capabilities: {add: [NET_ADMIN]}, privileged: false}\n  securityContext: {runAsNonRoot: true}\n":                                                 "",
		pod + "    resources: {limits: {example.com/dongle: 1}, requests: {example.com/dongle: 1}}\n":                                                                                               "",
		pod + "  priorityClassName: high\n  preemptionPolicy: Never\n  schedulingGates: [{name: example.com/quota}]\n":                                                                              "",
		pod + "  affinity:\n    podAffinity:\n      requiredDuringSchedulingIgnoredDuringExecution:\n      - {topologyKey: zone, namespaces: [x], namespaceSelector: {matchLabels: {a: b}}, matchLabelKeys: [rev], labelSelector: {matchExpressions: [{key: app, operator: Exists}]}}\n    podAntiAffinity:\n      preferredDuringSchedulingIgnoredDuringExecution:\n      - {weight: 1, podAffinityTerm: {topologyKey: zone, mismatchLabelKeys: [rev], labelSelector: {}}}\n": "",
		pod + "  topologySpreadConstraints:\n  - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, minDomains: 2, nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor, matchLabelKeys: [rev], labelSelector: {matchLabels: {app: x}}}\n":                                                                                                                                                                                                                       "",
		pod + "  schedulingGroup: {podGroupName: x}\n": "f.yaml:8:3: spec.schedulingGroup: Forbidden: not supported by this version of Headway: pods are scheduled one by one, not in groups",
		"apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 1000\nglobalDefault: true\npreemptionPolicy: Never\ndescription: important\n": "",
		pod + "  hostNetwork: false\n": "",
		pod + "  hostNetwork: true\n  hostPID: true\n  hostIPC: true\n  imagePullSecrets: [{name: x}]\n": "",
		pod + "  runtimeClassName: x\n": "f.yaml:8:3: spec.runtimeClassName: Forbidden: not supported by this version of Headway: every container runs in runc",
		pod + "  securityContext: {sysctls: [{name: net.ipv4.tcp_syncookies, value: '1'}]}\n":           "",
		pod + "  securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]}\n":                     "f.yaml:8:32: spec.securityContext.sysctls[0].name: Forbidden: only kernel.shm_rmid_forced or net.ipv4.ip_local_port_range or net.ipv4.ip_local_reserved_ports or net.ipv4.ip_unprivileged_port_start or net.ipv4.ping_group_range or net.ipv4.tcp_syncookies or net.ipv4.tcp_keepalive_time or net.ipv4.tcp_keepalive_intvl or net.ipv4.tcp_keepalive_probes or net.ipv4.tcp_fin_timeout or net.ipv4.tcp_rmem or net.ipv4.tcp_wmem is supported by this version of Headway: another is not the pod's own, or can harm its node",
		pod + "    resources: {limits: {ephemeral-storage: 1Gi}, requests: {ephemeral-storage: 1Gi}}\n": "",
		pod + "    resources: {limits: {memory: 1Gi, hugepages-2Mi: 4Mi}}\n":                            "",
		pod + "    resources: {limits: {kubernetes.io/x: 1}}\n":                                         "f.yaml:8:26: spec.containers[0].resources.limits[kubernetes.io/x]: Forbidden: not supported by this version of Headway: only cpu, memory, ephemeral-storage, huge pages and extended resources are accounted for",

		pod + "  schedulerName: mine\n": "f.yaml:8:3: spec.schedulerName: Forbidden: only default-scheduler is supported by this version of Headway: there is one scheduler",
		pod + "    securityContext: {seccompProfile: {type: Unconfined}}\n  securityContext: {seccompProfile: {type: Localhost, localhostProfile: a.json}}\n":                            "",
		pod + "  subdomain: x\n  dnsConfig: {options: [{name: rotate}]}\n":                                                                                                               "",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nimagePullSecrets: [{name: x}]\n":                                                                                     "f.yaml:4:1: imagePullSecrets: Forbidden: not supported by this version of Headway: images are pulled without credentials",
		pod + "  initContainers: [{name: b, image: i, tty: true}]\n":                                                                                                                     "f.yaml:8:40: spec.initContainers[0].tty: Forbidden: not supported by this version of Headway: containers have no terminal",
		pod + "    lifecycle: {preStop: {tcpSocket: {port: 1}}}\n":                                                                                                                       "f.yaml:8:27: spec.containers[0].lifecycle.preStop.tcpSocket: Forbidden: not supported by this version of Headway: a hook cannot be one, in Kubernetes it fails when it is called",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  managedBy: other.io/controller\n  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n": "f.yaml:5:3: spec.managedBy: Forbidden: only kubernetes.io/job-controller is supported by this version of Headway: Headway runs every Job",
		"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  suspend: true\n  completionMode: Indexed\n  completions: 4\n  backoffLimitPerIndex: 1\n  maxFailedIndexes: 2\n  successPolicy: {rules: [{succeededIndexes: 0-1, succeededCount: 1}]}\n  podReplacementPolicy: Failed\n  podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {containerName: c, operator: In, values: [1]}}, {action: Ignore, onPodConditions: [{type: DisruptionTarget, status: " + `"True"` + "}]}]}\n  template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}\n": "",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, finalizers: [x.y/z]}\n":                        "f.yaml:3:21: metadata.finalizers: Forbidden: a declared object is deleted when its manifest is: remove it",
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  generateName: a-\n":                                   "f.yaml:4:3: metadata.generateName: Forbidden: a declared object needs a name of its own: each commit would make another",
		"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  annotations:\n    headway.dev/commit: x\n": "f.yaml:6:5: metadata.annotations[headway.dev/commit]: Forbidden: written by the cluster: remove it",
	} {
		manifests, problems := decode(text)
		for _, m := range manifests {
			problems = append(problems, m.Check()...)
		}
		switch {
		case want == "" && len(problems) > 0:
			t.Errorf("%s\nrefused: %v", text, problems)
		case want != "" && (len(problems) == 0 || len(problems) > 2 || problems[0].String() != want):
			t.Errorf("%s\n got %v\nwant %s", text, problems, want)
		}
	}
}

func TestUnsupportedLooksAtDeclarableKindsOnly(t *testing.T) {
	if errs := api.Unsupported(&corev1.Node{Spec: corev1.NodeSpec{PodCIDR: "x"}}); len(errs) > 0 {
		t.Error(errs)
	}
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{RuntimeClassName: new("x"), ResourceClaims: []corev1.PodResourceClaim{{Name: "x"}}}}}}
	if errs := api.Unsupported(d); len(errs) != 2 {
		t.Errorf("got %v", errs)
	}
}

func TestSelectJob(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j", UID: "u"}}
	template := map[string]string{"app": "x"}
	job.Spec.Template.Labels = template
	api.SelectJob(job)
	want := map[string]string{"app": "x", "job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", "batch.kubernetes.io/controller-uid": "u"}
	if !reflect.DeepEqual(job.Spec.Template.Labels, want) || len(template) != 1 {
		t.Errorf("labels %v, the given ones are now %v", job.Spec.Template.Labels, template)
	}
	if got := job.Spec.Selector.MatchLabels; !reflect.DeepEqual(got, map[string]string{"batch.kubernetes.io/controller-uid": "u"}) {
		t.Errorf("selector %v", got)
	}
	manual := true
	own := &batchv1.Job{Spec: batchv1.JobSpec{ManualSelector: &manual}}
	api.SelectJob(own)
	if own.Spec.Selector != nil || own.Spec.Template.Labels != nil {
		t.Error("a Job with its own selector was changed")
	}
}
