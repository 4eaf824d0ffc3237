package resolv

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The limits that Kubernetes keeps to: what libc reads of a file.
const (
	mostNameservers = 3
	mostSearches    = 32
	searchesLength  = 2048 // of the whole line
	searchLength    = 253  // glibc aborts over a longer one
)

// Cluster is where the cluster's names are answered.
type Cluster struct {
	Domain string     // cluster.local
	Server netip.Addr // zero: nowhere; pods use the node's resolvers
}

// For is a pod's resolv.conf: by its dnsPolicy, with its dnsConfig on top, as far as
// libc reads it. node is the node's file. cut says what did not fit; "" when all
// did.
func For(pod *corev1.Pod, cluster Cluster, node File) (f File, cut string) {
	switch policyOf(pod, cluster) {
	case corev1.DNSNone:
	case corev1.DNSDefault:
		f = node
	default:
		svc := "svc." + cluster.Domain
		f = File{
			Nameservers: []string{cluster.Server.String()},
			Searches:    unique(append([]string{pod.Namespace + "." + svc, svc, cluster.Domain}, node.Searches...)),
			Options:     []string{"ndots:5"},
		}
	}
	if own := pod.Spec.DNSConfig; own != nil {
		f.Nameservers = unique(append(slices.Clone(f.Nameservers), own.Nameservers...))
		f.Searches = unique(append(slices.Clone(f.Searches), own.Searches...))
		for _, option := range own.Options {
			text := option.Name
			if option.Value != nil && *option.Value != "" {
				text += ":" + *option.Value
			}
			f.Options = withOption(f.Options, text)
		}
	}
	return f.fitted()
}

// policyOf is the policy in force: the node's resolvers for pods that use the
// node's network without asking for the cluster's, and where the cluster has none.
func policyOf(pod *corev1.Pod, cluster Cluster) corev1.DNSPolicy {
	policy := pod.Spec.DNSPolicy
	switch {
	case policy == corev1.DNSNone || policy == corev1.DNSDefault:
		return policy
	case !cluster.Server.IsValid(), pod.Spec.HostNetwork && policy != corev1.DNSClusterFirstWithHostNet:
		return corev1.DNSDefault
	}
	return corev1.DNSClusterFirst
}

func unique(list []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		had := seen[s]
		seen[s] = true
		return had
	})
}

// fitted leaves out what libc would not read, the last ones first.
func (f File) fitted() (out File, cut string) {
	var problems []string
	if len(f.Nameservers) > mostNameservers {
		problems = append(problems, fmt.Sprintf("nameservers after the first %d: %s", mostNameservers, strings.Join(f.Nameservers[mostNameservers:], " ")))
		f.Nameservers = f.Nameservers[:mostNameservers]
	}
	var fit, left []string
	length := -1 // of the line; the first has no space before it
	full := false
	for i, s := range f.Searches {
		switch {
		case i >= mostSearches, full:
			left = append(left, s)
		case len(s) > searchLength:
			left = append(left, s)
		case length+1+len(s) > searchesLength:
			full = true
			left = append(left, s)
		default:
			fit = append(fit, s)
			length += 1 + len(s)
		}
	}
	if len(left) > 0 {
		problems = append(problems, fmt.Sprintf("search domains after %d of them, %d characters, or of more than %d characters each: %s", mostSearches, searchesLength, searchLength, strings.Join(left, " ")))
	}
	f.Searches = fit
	return f, strings.Join(problems, "; ")
}
