package admission

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func accountFacts(accounts ...*corev1.ServiceAccount) Facts {
	f := Facts{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}
	for _, a := range accounts {
		f.Accounts = append(f.Accounts, a)
	}
	return f
}

func newAccount(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func podOf(account string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{
		ServiceAccountName: account, InitContainers: []corev1.Container{{Name: "init", Image: "i"}}, Containers: []corev1.Container{{Name: "main", Image: "i"}},
	}}
}

func admitPod(t *testing.T, pod *corev1.Pod, f Facts) *corev1.Pod {
	t.Helper()
	out, err := Admit(Request{Verb: Create, Object: pod}, f)
	if err != nil {
		t.Fatal(err)
	}
	return out.(*corev1.Pod)
}

func TestAPodOfAnUnknownAccountIsForbidden(t *testing.T) {
	for _, f := range []Facts{accountFacts(), accountFacts(newAccount("elsewhere", "robot"))} {
		_, err := Admit(Request{Verb: Create, Object: podOf("robot")}, f)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `error looking up service account shop/robot: serviceaccount "robot" not found`) {
			t.Errorf("%v", err)
		}
	}
	// The account that every namespace has may be on its way.
	if got := admitPod(t, podOf(""), accountFacts()).Spec; got.ServiceAccountName != "default" || got.DeprecatedServiceAccount != "default" {
		t.Errorf("%q %q", got.ServiceAccountName, got.DeprecatedServiceAccount)
	}
}

// The volume is the one that Kubernetes adds, in every container that has nothing in its
// place, and the same for all pods of an account.
func TestCredentialsAreMounted(t *testing.T) {
	f := accountFacts(newAccount("shop", "robot"))
	got := admitPod(t, podOf("robot"), f)
	if len(got.Spec.Volumes) != 1 {
		t.Fatalf("%+v", got.Spec.Volumes)
	}
	v := got.Spec.Volumes[0]
	if !strings.HasPrefix(v.Name, "kube-api-access-") || len(v.Name) != len("kube-api-access-")+5 {
		t.Errorf("it is called %s", v.Name)
	}
	s := v.Projected.Sources
	if *v.Projected.DefaultMode != 0o644 || len(s) != 3 || s[0].ServiceAccountToken.Path != "token" || *s[0].ServiceAccountToken.ExpirationSeconds != 3607 || s[0].ServiceAccountToken.Audience != "" ||
		s[1].ConfigMap.Name != "kube-root-ca.crt" || s[1].ConfigMap.Items[0] != (corev1.KeyToPath{Key: "ca.crt", Path: "ca.crt"}) ||
		s[2].DownwardAPI.Items[0].Path != "namespace" || s[2].DownwardAPI.Items[0].FieldRef.FieldPath != "metadata.namespace" {
		t.Errorf("%+v", s)
	}
	want := corev1.VolumeMount{Name: v.Name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	for _, c := range slices.Concat(got.Spec.InitContainers, got.Spec.Containers) {
		if len(c.VolumeMounts) != 1 || !reflect.DeepEqual(c.VolumeMounts[0], want) {
			t.Errorf("%s: %+v", c.Name, c.VolumeMounts)
		}
	}
	if again := admitPod(t, podOf("robot"), f); again.Spec.Volumes[0].Name != v.Name {
		t.Error("two pods of a template differ")
	}
	if errs := api.Unsupported(got); len(errs) > 0 {
		t.Errorf("what admission adds is refused: %v", errs)
	}

	own := podOf("robot")
	own.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "own", MountPath: want.MountPath}}
	own.Spec.Volumes = []corev1.Volume{{Name: "own"}}
	got = admitPod(t, own, f)
	if len(got.Spec.Containers[0].VolumeMounts) != 1 || len(got.Spec.InitContainers[0].VolumeMounts) != 1 || len(got.Spec.Volumes) != 2 {
		t.Errorf("beside a mount of its own: %+v", got.Spec)
	}
	own.Spec.InitContainers = nil
	if got = admitPod(t, own, f); len(got.Spec.Volumes) != 1 {
		t.Errorf("a volume that nothing mounts: %+v", got.Spec.Volumes)
	}
	there := podOf("robot")
	there.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-xyz12"}}
	if got = admitPod(t, there, f); len(got.Spec.Volumes) != 1 || got.Spec.Containers[0].VolumeMounts[0].Name != "kube-api-access-xyz12" {
		t.Errorf("a volume of that kind twice: %+v", got.Spec.Volumes)
	}
}

// The pod's word about credentials goes before its account's.
func TestWhoWantsCredentials(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		pod, account *bool
		want         bool
	}{{nil, nil, true}, {nil, &no, false}, {nil, &yes, true}, {&no, nil, false}, {&no, &yes, false}, {&yes, &no, true}} {
		a, p := newAccount("shop", "robot"), podOf("robot")
		a.AutomountServiceAccountToken, p.Spec.AutomountServiceAccountToken = c.account, c.pod
		if got := admitPod(t, p, accountFacts(a)); (len(got.Spec.Volumes) == 1) != c.want {
			t.Errorf("%+v: %+v", c, got.Spec.Volumes)
		}
	}
}

func TestPullSecretsOfTheAccount(t *testing.T) {
	a := newAccount("shop", "robot")
	a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	p := podOf("robot")
	if got := admitPod(t, p, accountFacts(a)).Spec.ImagePullSecrets; len(got) != 1 || got[0].Name != "hub" {
		t.Errorf("%v", got)
	}
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "own"}}
	if got := admitPod(t, p, accountFacts(a)).Spec.ImagePullSecrets; len(got) != 1 || got[0].Name != "own" {
		t.Errorf("%v", got)
	}
}

// An account with the annotation lets its pods use the Secrets that it lists, and no
// others.
func TestOnlyMountableSecrets(t *testing.T) {
	a := newAccount("shop", "robot")
	a.Annotations = map[string]string{"kubernetes.io/enforce-mountable-secrets": "true"}
	a.Secrets = []corev1.ObjectReference{{Name: "mine"}}
	a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "hub"}}
	for what, c := range map[string]struct {
		use  func(p *corev1.Pod, name string)
		says string
	}{
		"a volume": {func(p *corev1.Pod, name string) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
		}, `volume with secret.secretName="other" is not allowed because service account robot does not reference that secret`},
		"a variable": {func(p *corev1.Pod, name string) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}}
		}, `envVar A referencing secret.secretName="other"`},
		"variables": {func(p *corev1.Pod, name string) {
			p.Spec.InitContainers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
		}, `container init with envFrom referencing secret.secretName="other"`},
	} {
		p := podOf("robot")
		c.use(p, "mine")
		admitPod(t, p, accountFacts(a))
		c.use(p, "other")
		if _, err := Admit(Request{Verb: Create, Object: p}, accountFacts(a)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
		free := newAccount("shop", "robot")
		admitPod(t, p, accountFacts(free))
	}
	p := podOf("robot")
	debug := func(name string) error {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "busybox", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}},
		}}}
		_, err := Admit(Request{Verb: Update, Subresource: EphemeralContainers, Object: p, Old: podOf("robot")}, accountFacts(a))
		return err
	}
	if err := debug("mine"); err != nil {
		t.Errorf("an ephemeral container: %v", err)
	}
	if err := debug("other"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `container debug with envFrom referencing secret.secretName="other"`) {
		t.Errorf("an ephemeral container: %v", err)
	}
	p = podOf("robot")
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}}
	if _, err := Admit(Request{Verb: Create, Object: p}, accountFacts(a)); !apierrors.IsForbidden(err) {
		t.Errorf("a pull secret: %v", err)
	}
}
