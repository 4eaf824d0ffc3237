package agent

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the Service that leads to the API servers; every pod has its
// variables.
const apiService = "kubernetes"

// links are the variables that tell a container of the Services that there are when
// it starts: those of the pod's namespace, unless enableServiceLinks is false, and
// the API's. Their names are Kubernetes' ("Discovering services, environment
// variables"), those of Docker's links among them.
func (f *flow) links(pod *corev1.Pod) map[string]string {
	vars := map[string]string{}
	if s := f.services[metav1.NamespaceDefault][apiService]; s != nil {
		addLinks(s, vars)
	}
	if pod.Spec.EnableServiceLinks != nil && !*pod.Spec.EnableServiceLinks {
		return vars
	}
	services := f.services[pod.Namespace]
	for _, name := range sortedKeys(services) {
		addLinks(services[name], vars)
	}
	return vars
}

func addLinks(s *corev1.Service, vars map[string]string) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || s.Spec.Type == corev1.ServiceTypeExternalName || len(s.Spec.Ports) == 0 {
		return
	}
	name := variable(s.Name)
	vars[name+"_SERVICE_HOST"] = ip
	vars[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port, protocol := strconv.Itoa(int(p.Port)), strings.ToLower(string(p.Protocol))
		if protocol == "" {
			protocol = "tcp"
		}
		if p.Name != "" {
			vars[name+"_SERVICE_PORT_"+variable(p.Name)] = port
		}
		url := protocol + "://" + net.JoinHostPort(ip, port)
		prefix := fmt.Sprintf("%s_PORT_%s_%s", name, port, strings.ToUpper(protocol))
		if i == 0 {
			vars[name+"_PORT"] = url
		}
		vars[prefix], vars[prefix+"_PROTO"], vars[prefix+"_PORT"], vars[prefix+"_ADDR"] = url, protocol, port, ip
	}
}

func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
