package session

import (
	"cmp"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"headway.dev/headway/api"
)

// Bounds that both ends keep.
const (
	MaxMessage = 4 << 20   // bytes of one message; an object has at most 1.5 MiB
	MaxChunk   = 64 << 10  // bytes of one message of a Stream
	MaxPods    = 1000      // pods that one node runs
	MaxHeld    = 5000      // pods that one node has, those that have ended and wait to go included
	MaxStreams = 64        // open streams of one node
	MaxNode    = 256 << 10 // bytes of a Node that an agent sends
	MaxGone    = 1000      // volumes that an agent says at one time that it is done with
)

const (
	userPrefix = "system:node:"
	group      = "system:nodes"
)

// Subject is the name in the certificate of a node.
func Subject(node string) pkix.Name {
	return pkix.Name{CommonName: userPrefix + node, Organization: []string{group}}
}

// NodeOf reads the node's name out of its verified certificate.
func NodeOf(cert *x509.Certificate) (string, error) {
	name, ok := strings.CutPrefix(cert.Subject.CommonName, userPrefix)
	if !ok || !slices.Contains(cert.Subject.Organization, group) {
		return "", fmt.Errorf("certificate of %q is not a node's: its subject must be CN=%s<name>, O=%s", cert.Subject.CommonName, userPrefix, group)
	}
	return name, CheckNode(name)
}

// CheckNode says what is wrong with a node's name.
func CheckNode(name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("node name %q: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// Labels of a Node by their names before Kubernetes 1.14. Its kubelet sets them to this
// day.
const (
	LabelOS   = "beta.kubernetes.io/os"
	LabelArch = "beta.kubernetes.io/arch"
)

// SettableLabel says whether an agent may set a label on its own Node: the
// well-known facts, and any key outside the domains that schedulers and people
// trust.
func SettableLabel(key string) bool {
	switch key {
	case corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, LabelOS, LabelArch,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable:
		return true
	}
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return true
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io", "headway.dev"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return false
		}
	}
	return true
}

// SettableAnnotation says whether an agent decides about an annotation of its own Node:
// it is what the agent says, and gone when it says nothing.
func SettableAnnotation(key string) bool { return key == api.VolumesDirAnnotation }

// Reference is a ConfigMap, a Secret or a claim that a pod refers to, in its namespace.
type Reference struct {
	Resource string // configmaps, secrets, persistentvolumeclaims
	Name     string
}

// The resources that a session carries.
const (
	Pods       = "pods"
	ConfigMaps = "configmaps"
	Secrets    = "secrets"
	Services   = "services"
	Slices     = "endpointslices"
	Claims     = "persistentvolumeclaims"
	Volumes    = "persistentvolumes"
)

// References lists what a pod refers to, sorted, each once.
func References(pod *corev1.Pod) []Reference {
	spec := &pod.Spec
	var out []Reference
	add := func(resource, name string) {
		if name != "" {
			out = append(out, Reference{resource, name})
		}
	}
	for _, s := range spec.ImagePullSecrets {
		add(Secrets, s.Name)
	}
	for _, cs := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range cs {
			containerReferences(&cs[i], add)
		}
	}
	for i := range spec.Volumes {
		volumeReferences(&spec.Volumes[i], add)
		add(Claims, api.ClaimName(pod, &spec.Volumes[i]))
	}
	slices.SortFunc(out, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(out)
}

// WantedToken is a token of a pod's account that one of its volumes shows.
type WantedToken struct {
	Audience string // "": the API's
	Seconds  int64
}

// Tokens lists the tokens that a pod's volumes show, sorted, each once.
func Tokens(spec *corev1.PodSpec) []WantedToken {
	var out []WantedToken
	for i := range spec.Volumes {
		if spec.Volumes[i].Projected == nil {
			continue
		}
		for _, s := range spec.Volumes[i].Projected.Sources {
			if s.ServiceAccountToken != nil {
				out = append(out, TokenOf(s.ServiceAccountToken))
			}
		}
	}
	slices.SortFunc(out, func(a, b WantedToken) int {
		return cmp.Or(cmp.Compare(a.Audience, b.Audience), cmp.Compare(a.Seconds, b.Seconds))
	})
	return slices.Compact(out)
}

// TokenOf is the token that a source of a volume shows.
func TokenOf(p *corev1.ServiceAccountTokenProjection) WantedToken {
	out := WantedToken{Audience: p.Audience, Seconds: 3600} // Kubernetes' default
	if p.ExpirationSeconds != nil {
		out.Seconds = *p.ExpirationSeconds
	}
	return out
}

func containerReferences(c *corev1.Container, add func(resource, name string)) {
	for _, f := range c.EnvFrom {
		if f.ConfigMapRef != nil {
			add(ConfigMaps, f.ConfigMapRef.Name)
		}
		if f.SecretRef != nil {
			add(Secrets, f.SecretRef.Name)
		}
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		if r := e.ValueFrom.ConfigMapKeyRef; r != nil {
			add(ConfigMaps, r.Name)
		}
		if r := e.ValueFrom.SecretKeyRef; r != nil {
			add(Secrets, r.Name)
		}
	}
}

func volumeReferences(v *corev1.Volume, add func(resource, name string)) {
	if v.ConfigMap != nil {
		add(ConfigMaps, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		add(Secrets, v.Secret.SecretName)
	}
	if v.Projected == nil {
		return
	}
	for _, s := range v.Projected.Sources {
		if s.ConfigMap != nil {
			add(ConfigMaps, s.ConfigMap.Name)
		}
		if s.Secret != nil {
			add(Secrets, s.Secret.Name)
		}
	}
}
