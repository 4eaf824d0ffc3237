// Package hostport reads which ports of their node pods take, and says which of them
// cannot be taken at one time. The scheduler asks before it binds a pod, and the node's
// agent before it runs one that somebody else bound.
package hostport

import (
	corev1 "k8s.io/api/core/v1"
)

// anyIP stands for all addresses of the node.
const anyIP = "0.0.0.0"

// Port of a node. Two that are equal are the same port.
type Port struct {
	Protocol corev1.Protocol
	Number   int32
	IP       string
}

// Of lists what a pod takes.
func Of(pod *corev1.Pod) []Port {
	var out []Port
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for _, p := range containers[i].Ports {
				if p.HostPort <= 0 {
					continue
				}
				h := Port{Protocol: p.Protocol, Number: p.HostPort, IP: p.HostIP}
				if h.Protocol == "" {
					h.Protocol = corev1.ProtocolTCP
				}
				if h.IP == "" {
					h.IP = anyIP
				}
				out = append(out, h)
			}
		}
	}
	return out
}

// Clashes says whether only one of two ports can be taken.
func (p Port) Clashes(with Port) bool {
	return p.Number == with.Number && p.Protocol == with.Protocol && (p.IP == with.IP || p.IP == anyIP || with.IP == anyIP)
}
