package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// part is a Deployment that serves an answer.
func part(name, answer string, replicas int) string {
	return strings.NewReplacer("name: web", "name: "+name, "app: web", "app: "+name).Replace(web(answer, replicas))
}

func service(name, app, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec:\n  selector: {app: %s}\n  ports: [{name: http, port: 80, targetPort: 8080}]\n%s", name, app, more)
}

// inside asks the first pod of app to do something: what it answers.
func (c *cluster) inside(app, path string) (string, error) {
	pods := c.pods("app=" + app)
	if len(pods) == 0 || pods[0].Status.PodIP == "" {
		return "", fmt.Errorf("no pod of %s has an address", app)
	}
	return demand(pods[0].Status.PodIP, path)
}

// demand is askPath with an error for what is no answer.
func demand(ip, path string) (string, error) {
	resp, err := http.Get("http://" + ip + ":8080" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(string(body))
	}
	return string(body), err
}

// from asks from inside a pod of app: what a URL answers.
func (c *cluster) from(app, target string) (string, error) {
	return c.inside(app, "/via?url="+url.QueryEscape(target))
}

// becomes waits until a question has this answer.
func becomes(t *testing.T, what, want string, ask func() (string, error)) {
	t.Helper()
	eventually(t, what, func() error {
		got, err := ask()
		if err == nil && got != want {
			err = fmt.Errorf("got %q, want %q", got, want)
		}
		return err
	})
}

// An application of two parts that know each other by name, and every type of
// Service.
func TestServices(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("two parts", map[string]string{
		"web.yaml": part("web", "page", 2), "db.yaml": part("db", "row", 3),
		"services.yaml": strings.Join([]string{
			service("db", "db", ""), service("peers", "db", "  clusterIP: None\n"),
			service("web", "web", "  type: NodePort\n"), service("front", "web", "  type: LoadBalancer\n"),
			service("sticky", "db", "  sessionAffinity: ClientIP\n"),
			"apiVersion: v1\nkind: Service\nmetadata: {name: away}\nspec: {type: ExternalName, externalName: db.default.svc.cluster.local}\n",
			"apiVersion: v1\nkind: Service\nmetadata: {name: given}\nspec:\n  ports: [{name: http, port: 80}]\n",
		}, "---\n"),
	})
	db := get[corev1.Service](c, "service", "db")
	for _, target := range []string{"http://db", "http://db.default", "http://db.default.svc.cluster.local", "http://" + db.Spec.ClusterIP, "http://away"} {
		becomes(t, target+" from a pod", "row", func() (string, error) { return c.from("web", target) })
	}
	becomes(t, "the cluster IP from the node", "row", func() (string, error) { return fetch("http://" + db.Spec.ClusterIP) })
	becomes(t, "a pod through its own Service", "page", func() (string, error) { return c.from("web", "http://web") })

	// Headless: the pods themselves.
	becomes(t, "the headless name", strings.Join(addresses(c.pods("app=db")), " "), func() (string, error) { return c.inside("web", "/resolve?name=peers") })

	// From outside: node port and load balancer.
	node := get[corev1.NodeList](c, "nodes").Items[0].Status.Addresses[0].Address
	port := get[corev1.Service](c, "service", "web").Spec.Ports[0].NodePort
	for _, host := range []string{node, "127.0.0.1"} {
		becomes(t, "the node port at "+host, "page", func() (string, error) { return fetch(fmt.Sprintf("http://%s:%d", host, port)) })
	}
	becomes(t, "the load balancer's address", node, func() (string, error) {
		return c.tryKubectl("get", "service", "front", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
	})
	becomes(t, "the load balancer", "page", func() (string, error) { return fetch("http://" + node) })

	// A client stays with its pod.
	first, err := c.from("web", "http://sticky/host")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got, err := c.from("web", "http://sticky/host"); err != nil || got != first {
			t.Fatalf("answered by %s, then by %s: %v", first, got, err)
		}
	}

	// Endpoints that people declare.
	pod := c.pods("app=db")[0]
	c.deploy("endpoints by hand", map[string]string{"given.yaml": fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: given-1\n  labels: {kubernetes.io/service-name: given}\naddressType: IPv4\nports: [{name: http, port: 8080, protocol: TCP}]\nendpoints: [{addresses: [%s]}]\n", pod.Status.PodIP)})
	becomes(t, "declared endpoints", pod.Name, func() (string, error) { return c.from("web", "http://given/host") })

	// What kubectl's users look at.
	contains(t, "kubectl get services", c.kubectl("get", "services"), "NodePort", "LoadBalancer", "ExternalName", "None", db.Spec.ClusterIP, fmt.Sprintf("80:%d/TCP", port))
	contains(t, "kubectl get endpoints", c.kubectl("get", "endpoints", "db"), ":8080")
	if slices := get[discoveryv1.EndpointSliceList](c, "endpointslices", "-l", discoveryv1.LabelServiceName+"=db"); len(slices.Items) != 1 || len(slices.Items[0].Endpoints) != 3 {
		t.Errorf("slices of db: %+v", slices.Items)
	}
	contains(t, "kubectl describe service", c.kubectl("describe", "service", "db"), "app=db", ":8080")

	// The path, explained; then without its end.
	out, err := c.headway("net", c.pods("app=web")[0].Name, "db")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	contains(t, "headway net", out, "db.default.svc.cluster.local is "+db.Spec.ClusterIP, "ready", "members")
	c.deploy("no db", map[string]string{"db.yaml": part("db", "row", 0)})
	eventually(t, "headway net to say where it stops", func() error {
		out, err := c.headway("net", c.pods("app=web")[0].Name, "db:http")
		if err == nil && !strings.Contains(out, "STOPS") {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
	eventually(t, "a refused connection", func() error {
		if _, err := c.from("web", "http://db"); err == nil || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("got %v", err)
		}
		return nil
	})
}

func addresses(pods []corev1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Status.PodIP)
	}
	slices.Sort(out)
	return out
}

// Rules that someone flushed come back; names and routes stand while the control
// plane is away, and over a restart of the agent.
func TestR9_ServicesWithoutControlPlane(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	node := prepareCluster(t)
	node.addProbe()
	c.args = []string{"server", "--data-dir", c.data(), "--listen", c.listen}
	c.start()
	eventually(t, "the server to answer", func() error {
		_, err := c.tryKubectl("get", "nodes")
		return err
	})
	token, err := c.headway("token")
	if err != nil {
		t.Fatal(err)
	}
	join := []string{"agent", "--data-dir", node.data(), "--server", "https://" + c.listen, "--containerd", host.socket, undisturbed, "--node-name", "worker"}
	node.args = append(join, "--token", strings.TrimSpace(token))
	node.start()
	c.waitReady()
	c.deploy("two parts", map[string]string{"web.yaml": part("web", "page", 1), "db.yaml": part("db", "row", 2), "db-service.yaml": service("db", "db", "")})
	becomes(t, "the Service", "row", func() (string, error) { return c.from("web", "http://db") })
	ip := c.pods("app=web")[0].Status.PodIP
	ask := func() (string, error) { return demand(ip, "/via?url="+url.QueryEscape("http://db")) }

	table := node.routeTable()
	if out, err := exec.Command("nft", "delete", "table", "ip", table).CombinedOutput(); err != nil {
		t.Fatalf("nft delete table: %v %s", err, out)
	}
	becomes(t, "the Service after its rules were deleted", "row", ask)

	c.end(syscall.SIGKILL)
	for range 20 {
		if got, err := ask(); err != nil || got != "row" {
			t.Fatalf("without a server: %q %v", got, err)
		}
	}
	node.end(syscall.SIGKILL)
	node.args = join
	node.start()
	becomes(t, "the name after the agent's restart, without a server", "row", ask)
	c.start()
	c.waitReady()
	becomes(t, "the Service in the end", "row", ask)
}

// routeTable is the name of the nftables table of the cluster's routes.
func (c *cluster) routeTable() string {
	out, err := exec.Command("nft", "list", "tables", "ip").CombinedOutput()
	if err != nil {
		c.t.Fatalf("nft list tables: %v %s", err, out)
	}
	bridge := "headway-hw" + strings.TrimPrefix(c.namespace(), "headway-")
	for _, line := range strings.Split(string(out), "\n") {
		if f := strings.Fields(line); len(f) == 3 && strings.HasPrefix(f[2], bridge) && strings.HasSuffix(f[2], "-services") {
			return f[2]
		}
	}
	c.t.Fatalf("no table of %s among\n%s", bridge, out)
	return ""
}

// A client that keeps sending, over old connections and new ones, sees no failed
// request while pods are replaced, taken away and deleted. Nothing in the manifest
// waits for that: the application only ends its connections on SIGTERM.
//
// This version has no readiness probes: a pod is Ready when its containers run. The
// second container, which starts after the first, gives that the time to listen.
func TestNoRequestIsLost(t *testing.T) {
	c := probing(t)
	serving := func(answer string, replicas int) string {
		return part("web", answer, replicas) + fmt.Sprintf("        - {name: late, image: %s, args: [sleep]}\n", probeName)
	}
	c.deploy("one", map[string]string{"web.yaml": serving("one", 3), "service.yaml": service("web", "web", "")})
	becomes(t, "the Service", "one", func() (string, error) {
		return fetch("http://" + get[corev1.Service](c, "service", "web").Spec.ClusterIP)
	})
	hammer := strings.Replace(part("hammer", "", 1), "args: [serve]", `args: [hammer, "http://web"]`, 1)
	c.deploy("a client", map[string]string{"hammer.yaml": hammer})
	ip := c.pods("app=hammer")[0].Status.PodIP
	var seen struct {
		OK, Failed int
		Failures   []string
		Answers    map[string]int
	}
	tally := func() error {
		text, err := ask(ip)
		if err == nil {
			err = json.Unmarshal([]byte(text), &seen)
		}
		return err
	}
	sent := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d requests", n), func() error {
			if err := tally(); err != nil {
				return err
			}
			if seen.OK+seen.Failed < n {
				return fmt.Errorf("%d requests so far", seen.OK)
			}
			return nil
		})
	}
	sent(2000)
	c.deploy("two", map[string]string{"web.yaml": serving("two", 3)})
	sent(8000)
	c.deploy("less", map[string]string{"web.yaml": serving("two", 1)})
	sent(12000)
	c.deploy("more", map[string]string{"web.yaml": serving("two", 3)})
	c.kubectl("delete", "pod", c.pods("app=web")[0].Name)
	sent(16000)
	c.deploy("three", map[string]string{"web.yaml": serving("three", 2)})
	sent(max(20000, seen.OK+2000))
	if seen.Failed > 0 {
		t.Errorf("%d of %d requests failed:\n%s", seen.Failed, seen.OK+seen.Failed, strings.Join(seen.Failures, "\n"))
	}
	if seen.Answers["one"] == 0 || seen.Answers["two"] == 0 || seen.Answers["three"] == 0 {
		t.Errorf("the client did not see the changes: %v", seen.Answers)
	}
	t.Logf("%d requests, answers %v", seen.OK, seen.Answers)
}
