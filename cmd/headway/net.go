package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/network/route"
	"headway.dev/headway/store"
)

const netPath = "/headway/net"

// netAnswer is what headway net prints.
type netAnswer struct {
	Pod  string `json:"pod"` // namespace/name
	Node string `json:"node"`
	route.Path
}

func netCommand() *cobra.Command {
	var data, output, namespace string
	cmd := &cobra.Command{
		Use:   "net POD SERVICE[:PORT]",
		Short: "Explain how a pod reaches a Service, and where it stops",
		Long: `Follows a connection from a pod to a Service, as the pod's node would: the name,
the address, the policy, the endpoints with their states, and what the kernel of the
node really has of it. The last line says where the connection stops, if it does.
SERVICE is a name in the pod's namespace, or NAMESPACE/NAME, or what the pod looks up,
such as NAME.NAMESPACE or NAME.NAMESPACE.svc.cluster.local; PORT its number or name.`,
		Example: "  headway net web-7d9c-x2v5k db:5432\n  headway net -n shop web-7d9c-x2v5k payments/api -o json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			service, port, err := serviceArgument(args[1])
			if err != nil {
				return err
			}
			query := url.Values{"namespace": {namespace}, "pod": {strings.TrimPrefix(args[0], "pod/")}, "service": {service}, "port": {port}}
			var a netAnswer
			if err := callServer(cmd.Context(), dataDir(data), http.MethodGet, netPath+"?"+query.Encode(), &a); err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), a)
			}
			printNet(cmd.OutOrStdout(), a)
			return nil
		},
	}
	dataDirFlag(cmd, &data)
	outputFlag(cmd, &output)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "namespace of the pod")
	return cmd
}

// serviceArgument reads SERVICE[:PORT]: a name, or NAMESPACE/NAME. A Service's name has
// no dot, so what stands behind the first is a namespace, and the domain after that.
func serviceArgument(text string) (service, port string, err error) {
	service, port, ported := strings.Cut(text, ":")
	service = strings.TrimSuffix(service, ".")
	namespace, name, named := strings.Cut(service, "/")
	if !named {
		namespace, name = "", service
		if first, rest, dotted := strings.Cut(service, "."); dotted {
			name = first
			var kind string
			namespace, kind, dotted = strings.Cut(rest, ".")
			if dotted && kind != "svc" && !strings.HasPrefix(kind, "svc.") {
				return "", "", fmt.Errorf("%q is no Service: names of the cluster are NAME.NAMESPACE.svc.DOMAIN", service)
			}
			named = true
		}
	}
	if len(validation.IsDNS1123Label(name)) > 0 || named && len(validation.IsDNS1123Label(namespace)) > 0 || ported && len(validation.IsDNS1123Label(port)) > 0 {
		return "", "", fmt.Errorf("%q names no Service: write NAME, NAMESPACE/NAME or NAME.NAMESPACE, and a port after a colon", text)
	}
	if named {
		name = namespace + "/" + name
	}
	return name, port, nil
}

func printNet(w io.Writer, a netAnswer) {
	fmt.Fprintf(w, "pod %s on node %s to %s\n\n", a.Pod, a.Node, a.Service)
	for _, line := range strings.Split(strings.TrimRight(a.String(), "\n"), "\n") {
		fmt.Fprintln(w, api.Printable(line))
	}
}

// serveNet has a pod's node explain how it reaches a Service, for administrators.
func (c *cluster) serveNet(w http.ResponseWriter, r *http.Request) {
	if !administrator(w, r) || !method(w, r, http.MethodGet) {
		return
	}
	a, err := c.explainNet(r)
	answer(w, a, err)
}

func (c *cluster) explainNet(r *http.Request) (*netAnswer, error) {
	q := r.URL.Query()
	pod, ok := c.store.Get(store.Key{GroupResource: api.Pods(), Namespace: q.Get("namespace"), Name: q.Get("pod")}).(*corev1.Pod)
	if !ok {
		return nil, &badRequest{http.StatusNotFound, fmt.Sprintf("there is no pod %q in namespace %q", q.Get("pod"), q.Get("namespace"))}
	}
	namespace, service, named := strings.Cut(q.Get("service"), "/")
	if !named {
		namespace, service = pod.Namespace, q.Get("service")
	}
	raw, err := c.nodes.Path(r.Context(), pod, namespace, service, q.Get("port"))
	if err != nil {
		return nil, err
	}
	a := &netAnswer{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName}
	if err := json.Unmarshal(raw, &a.Path); err != nil {
		return nil, fmt.Errorf("decode the answer of node %s: %w", pod.Spec.NodeName, err)
	}
	return a, nil
}
