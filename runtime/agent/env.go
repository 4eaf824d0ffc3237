package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// objects finds what pods refer to; nil when it is not there.
type objects interface {
	configMap(namespace, name string) *corev1.ConfigMap
	secret(namespace, name string) *corev1.Secret
}

// surroundings is what a container's variables can speak of.
type surroundings struct {
	pod         *corev1.Pod
	podIPs      []string
	hostIPs     []string
	allocatable corev1.ResourceList
	objects     objects
	links       map[string]string // of the Services that there are
}

// environment resolves a container's variables: the Services' first, then in the
// manifest's order envFrom and env, each of which can refer to those before it. Its error is one
// for CreateContainerConfigError and holds no value (R14).
func environment(s surroundings, c *corev1.Container) (map[string]string, error) {
	vars := maps.Clone(s.links)
	if vars == nil {
		vars = map[string]string{}
	}
	for _, from := range c.EnvFrom {
		if err := s.importAll(from, vars); err != nil {
			return nil, err
		}
	}
	left := mostHanded
	for name, value := range vars {
		left -= len(name) + len(value)
	}
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			value, err := expand(e.Value, lookup, max(left, 0))
			if err != nil {
				return nil, errTooMuch
			}
			left -= len(e.Name) + len(value)
			vars[e.Name] = value
			continue
		}
		value, ok, err := s.valueFrom(c, e.ValueFrom)
		if err != nil {
			return nil, err
		}
		if ok {
			left -= len(e.Name) + len(value)
			vars[e.Name] = value
		}
	}
	if left < 0 {
		return nil, errTooMuch
	}
	return vars, nil
}

// mostHanded is what Linux hands to a program at most of variables and arguments, in
// bytes: three quarters of the largest stack.
const mostHanded = 6 << 20

var errTooMuch = fmt.Errorf("its variables, command and args have more than %d MiB, which no program can be given", mostHanded>>20)

// command expands a container's command and args. Its error holds no value (R14).
func command(c *corev1.Container, vars map[string]string) (cmd, args []string, err error) {
	left := mostHanded
	lookup := func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	all := func(list []string) (out []string) {
		for _, s := range list {
			value, failed := expand(s, lookup, left)
			if failed != nil {
				err = errTooMuch
				return nil
			}
			left -= len(value)
			out = append(out, value)
		}
		return out
	}
	cmd, args = all(c.Command), all(c.Args)
	return cmd, args, err
}

// envList is the form that a process takes, sorted.
func envList(vars map[string]string) []string {
	out := make([]string, 0, len(vars))
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		out = append(out, k+"="+vars[k])
	}
	return out
}

func (s surroundings) importAll(from corev1.EnvFromSource, vars map[string]string) error {
	ns := s.pod.Namespace
	if r := from.ConfigMapRef; r != nil {
		cm := s.objects.configMap(ns, r.Name)
		if cm == nil {
			return missing(r.Optional, "configmap", r.Name)
		}
		for k, v := range cm.Data {
			vars[from.Prefix+k] = v
		}
	}
	if r := from.SecretRef; r != nil {
		secret := s.objects.secret(ns, r.Name)
		if secret == nil {
			return missing(r.Optional, "secret", r.Name)
		}
		for k, v := range secret.Data {
			vars[from.Prefix+k] = string(v)
		}
	}
	return nil
}

func missing(optional *bool, kind, name string) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %q not found", kind, name)
}

func (s surroundings) valueFrom(c *corev1.Container, from *corev1.EnvVarSource) (value string, ok bool, err error) {
	ns := s.pod.Namespace
	absent := func(optional *bool, kind, name, key string, found bool) error {
		if !found || optional != nil && *optional {
			return missing(optional, kind, name)
		}
		return fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, ns, name)
	}
	switch {
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		cm := s.objects.configMap(ns, r.Name)
		if cm != nil {
			if v, ok := cm.Data[r.Key]; ok {
				return v, true, nil
			}
		}
		return "", false, absent(r.Optional, "configmap", r.Name, r.Key, cm != nil)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		secret := s.objects.secret(ns, r.Name)
		if secret != nil {
			if v, ok := secret.Data[r.Key]; ok {
				return string(v), true, nil
			}
		}
		return "", false, absent(r.Optional, "secret", r.Name, r.Key, secret != nil)
	case from.FieldRef != nil:
		v, err := s.field(from.FieldRef.FieldPath)
		return v, err == nil, err
	case from.ResourceFieldRef != nil:
		v, err := s.resource(c, from.ResourceFieldRef)
		return v, err == nil, err
	}
	return "", false, fmt.Errorf("a valueFrom names no source that Headway knows")
}

// field is the downward API of one field.
func (s surroundings) field(path string) (string, error) {
	if name, key, ok := strings.Cut(path, "['"); ok && strings.HasSuffix(key, "']") {
		key = strings.TrimSuffix(key, "']")
		switch name {
		case "metadata.labels":
			return s.pod.Labels[key], nil
		case "metadata.annotations":
			return s.pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return s.pod.Name, nil
	case "metadata.namespace":
		return s.pod.Namespace, nil
	case "metadata.uid":
		return string(s.pod.UID), nil
	case "spec.nodeName":
		return s.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return s.pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return first(s.podIPs), nil
	case "status.podIPs":
		return strings.Join(s.podIPs, ","), nil
	case "status.hostIP":
		return first(s.hostIPs), nil
	case "status.hostIPs":
		return strings.Join(s.hostIPs, ","), nil
	}
	return "", fmt.Errorf("field path %q is not one a variable can have", path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// resource is a container's request or limit, in units of the divisor, rounded
// up. A limit that is not set is what the node has.
func (s surroundings) resource(c *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	if ref.ContainerName != "" && ref.ContainerName != c.Name {
		other := containerNamed(s.pod, ref.ContainerName)
		if other == nil {
			return "", fmt.Errorf("container %q of a resourceFieldRef not found", ref.ContainerName)
		}
		c = other
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	var list corev1.ResourceList
	switch kind {
	case "limits":
		list = c.Resources.Limits
	case "requests":
		list = c.Resources.Requests
	default:
		return "", fmt.Errorf("resource %q of a resourceFieldRef is not known", ref.Resource)
	}
	q, set := list[corev1.ResourceName(name)]
	if !set && kind == "limits" {
		q = s.allocatable[corev1.ResourceName(name)]
	}
	return divide(q, ref.Divisor, name == string(corev1.ResourceCPU)), nil
}

func divide(q, divisor resource.Quantity, milli bool) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	n, d := q.Value(), divisor.Value()
	if milli {
		n, d = q.MilliValue(), divisor.MilliValue()
	}
	if d <= 0 {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatInt(n/d+min(n%d, 1), 10)
}
