package containerd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/resolv"
)

const (
	longestHostname = 63 // as Kubernetes cuts a pod's name
	longestNodename = 64 // the kernel's
)

// hostname of a pod without a domain: what it asks for, or its name as far as Linux
// allows.
func hostname(pod *corev1.Pod) string {
	name := pod.Name
	switch {
	case pod.Spec.HostnameOverride != nil:
		name = *pod.Spec.HostnameOverride
	case pod.Spec.Hostname != "":
		name = pod.Spec.Hostname
	}
	if len(name) > longestHostname {
		name = strings.TrimRight(name[:longestHostname], "-.")
	}
	return name
}

// domain in which a pod has a name: its subdomain's; "" when it has none.
func domain(pod *corev1.Pod, cluster string) string {
	if pod.Spec.Subdomain == "" || pod.Spec.HostnameOverride != nil {
		return ""
	}
	return pod.Spec.Subdomain + "." + pod.Namespace + ".svc." + cluster
}

// nodename is what the pod's containers have as their host name.
func nodename(pod *corev1.Pod, cluster string) (string, error) {
	name, domain := hostname(pod), domain(pod, cluster)
	if !isTrue(pod.Spec.SetHostnameAsFQDN) || domain == "" {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > longestNodename {
		return "", fmt.Errorf("setHostnameAsFQDN: %s has %d characters and a host name at most %d: shorten hostname, subdomain or namespace", full, len(full), longestNodename)
	}
	return full, nil
}

// nodename of a pod: its own, or the node's with the node's network.
func (r *Runtime) nodename(pod *corev1.Pod) (string, error) {
	if !pod.Spec.HostNetwork {
		return nodename(pod, r.cfg.DNS.Domain)
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the node's host name: %w", err)
	}
	return name, nil
}

// writeFiles writes the files that every container of the pod gets mounted.
func (r *Runtime) writeFiles(dir podDir, pod *corev1.Pod, ips []string) error {
	node, err := resolv.Node()
	if err != nil {
		return err
	}
	conf, cut := resolv.For(pod, r.cfg.DNS, node)
	if cut != "" {
		r.cfg.Log.Warn("resolv.conf of a pod cut to what libc reads", "namespace", pod.Namespace, "pod", pod.Name, "left out", cut)
	}
	name, err := r.nodename(pod)
	if err != nil {
		return err
	}
	names := hosts(pod, r.cfg.DNS.Domain, ips)
	if pod.Spec.HostNetwork {
		if names, err = nodeHosts(pod); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, text string }{
		{"hosts", names},
		{"hostname", name + "\n"},
		{"resolv.conf", conf.String()},
	} {
		// In place: a running container has this very file mounted.
		if err := os.WriteFile(dir.path(f.name), []byte(f.text), 0o644); err != nil {
			return fmt.Errorf("write file of pod: %w", err)
		}
	}
	return nil
}

// hosts begins with the line that Kubernetes documents, by which programs know that the
// file is not the image's.
func hosts(pod *corev1.Pod, cluster string, ips []string) string {
	var b strings.Builder
	b.WriteString(`# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
ff02::1	ip6-allnodes
ff02::2	ip6-allrouters
`)
	names := hostname(pod)
	if domain := domain(pod, cluster); domain != "" {
		names = names + "." + domain + "\t" + names
	}
	for _, ip := range ips {
		fmt.Fprintf(&b, "%s\t%s\n", ip, names)
	}
	aliases(&b, pod)
	return b.String()
}

// longestHosts is what is read of the node's file, in bytes.
const longestHosts = 1 << 20

// nodeHosts is the file of a pod with the node's network: the node's own, as it is
// now, and the pod's aliases.
func nodeHosts(pod *corev1.Pod) (string, error) {
	f, err := os.Open("/etc/hosts")
	if errors.Is(err, fs.ErrNotExist) {
		return hosts(pod, "", nil), nil
	}
	if err != nil {
		return "", fmt.Errorf("read the node's hosts: %w", err)
	}
	defer f.Close() // opened for reading: nothing to lose
	text, err := io.ReadAll(io.LimitReader(f, longestHosts+1))
	if err != nil {
		return "", fmt.Errorf("read the node's hosts: %w", err)
	}
	if len(text) > longestHosts {
		return "", fmt.Errorf("read the node's hosts: /etc/hosts is longer than %d bytes", longestHosts)
	}
	var b strings.Builder
	b.Write(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		b.WriteByte('\n')
	}
	aliases(&b, pod)
	return b.String(), nil
}

func aliases(b *strings.Builder, pod *corev1.Pod) {
	for _, a := range pod.Spec.HostAliases {
		fmt.Fprintf(b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
	}
}
