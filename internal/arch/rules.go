package arch

// Module is the import path that all our packages start with.
const Module = "headway.dev/headway"

// Rule says what the packages under Path (a folder of the repository, or a
// pattern that ends in "/*" for each folder directly below) may import of our
// own packages. A package that matches several rules follows the longest.
type Rule struct {
	Path  string
	May   []string // folders, "x/..." with everything below; "" entries never match
	Why   string
	Tests bool // the rule also holds for test files
}

// Rules is the table, one row per layer, lowest first.
func Rules() []Rule {
	return []Rule{
		{Path: "api", Why: "data and pure functions: everything may build on it"},
		{Path: "internal", May: []string{"api", "store"}, Why: "leaves; internal/event and internal/podset make objects and store operations, and no leaf imports a component"},
		{Path: "runtime/keeper", Why: "a process of a few megabytes must not pull in Kubernetes or the agent"},
		{Path: "store", May: []string{"api"}, Why: "the contract knows objects, not their users"},
		{Path: "store/*", May: []string{"store", "api", "internal/..."}, Why: "a backend gives the contract and knows no other backend"},
		{Path: "store/storetest", May: []string{"store", "store/memory", "api", "internal/..."}, Why: "opens a memory store for the unit tests of components"},
		{Path: "admission", May: []string{"api"}, Why: "pure functions on facts"},
		{Path: "reconcile", May: []string{"api", "store", "internal/..."}, Why: "the loop is above the store and below every component"},
		{Path: "reconcile/reconciletest", May: []string{"api", "store", "store/memory", "store/storetest", "admission", "reconcile", "internal/..."}, Why: "steps a controller by hand in the unit tests of components"},
		{Path: "syncer/git", May: []string{"api", "internal/..."}, Why: "git is told what to do; it decides nothing about objects"},
		{Path: "syncer/render", May: []string{"api", "internal/..."}, Why: "a tree in, manifests out"},
		{Path: "syncer/forge", May: []string{"api", "internal/..."}, Why: "speaks HTTP with forges about commits; stores nothing and decides nothing about objects"},
		{Path: "syncer/live", May: []string{"api", "internal/...", "syncer/live/..."}, Why: "manifests and live objects in, changed files out: no git, no store, no clock"},
		{Path: "syncer", May: []string{"api", "store", "admission", "reconcile", "internal/...", "syncer/..."}, Why: "a leader's component"},
		{Path: "controllers/*", May: []string{"api", "store", "admission", "reconcile", "internal/..."}, Why: "siblings never import siblings: they meet in the store"},
		{Path: "scheduler", May: []string{"api", "store", "admission", "reconcile", "internal/..."}, Why: "a leader's component"},
		{Path: "server", May: []string{"api", "store", "admission", "reconcile", "runtime/session", "internal/...", "server/..."}, Why: "serves the store; runs nothing"},
		{Path: "runtime/session", May: []string{"api", "internal/..."}, Why: "the protocol both ends share"},
		{Path: "runtime/network", May: []string{"api", "internal/..."}, Why: "one host concern"},
		{Path: "runtime/resolv", May: []string{"api", "internal/..."}, Why: "one host concern; a leaf that names and containers share"},
		{Path: "runtime/dns", May: []string{"api", "internal/...", "runtime/resolv"}, Why: "one host concern: it is given Services and slices, and knows neither session nor agent"},
		{Path: "runtime/volume", May: []string{"api", "internal/..."}, Why: "one host concern"},
		{Path: "runtime/image", May: []string{"api", "internal/..."}, Why: "one host concern"},
		{Path: "runtime/probe", May: []string{"api", "internal/..."}, Why: "one host concern: it asks containers and decides nothing about pods"},
		{Path: "runtime/agent", May: []string{"api", "runtime/agent/...", "runtime/session", "runtime/network", "runtime/volume", "runtime/image", "runtime/probe", "internal/..."}, Why: "a node sees only its session, never the store"},
		{Path: "runtime/containerd", May: []string{"api", "runtime/agent", "runtime/network", "runtime/resolv", "runtime/volume", "runtime/image", "runtime/keeper", "internal/..."}, Why: "gives the agent's Runtime"},
		{Path: "runtime/fake", May: []string{"api", "runtime/agent", "runtime/volume", "internal/..."}, Why: "gives the agent's Runtime and Volumes from a script"},
		{Path: "simulate", May: []string{"api", "store", "store/memory", "admission", "reconcile", "syncer", "syncer/git", "controllers/...", "scheduler", "server/nodes", "runtime/agent", "runtime/session", "runtime/fake", "internal/..."}, Why: "every component, on the backends that one goroutine can step; nothing that speaks with the world outside"},
	}
}

// Fence says that packages whose import path starts with one of Imports may be
// used only under the folders of Only.
type Fence struct {
	Imports []string
	Only    []string
	Why     string
}

// Fences outside the repository. Test files may cross them where they check the
// real thing against ours.
func Fences() []Fence {
	return []Fence{
		{Imports: []string{"go.etcd.io/etcd"}, Only: []string{"store/etcd"}, Why: "so that the store can change its backend"},
		{Imports: []string{"github.com/containerd/containerd/v2", "github.com/containerd/containerd/api"}, Only: []string{"runtime"}, Why: "so that the engine can be another one"},
		{Imports: []string{"github.com/containerd/go-cni", "github.com/containernetworking", "github.com/vishvananda/netlink", "sigs.k8s.io/knftables"}, Only: []string{"runtime"}, Why: "host concerns stay on the host's side"},
		{Imports: []string{"github.com/go-git/go-git"}, Only: []string{"syncer/git"}, Why: "one package speaks git"},
		{Imports: []string{"github.com/miekg/dns"}, Only: []string{"runtime/dns"}, Why: "one package speaks DNS"},
		{Imports: []string{"k8s.io/kubernetes"}, Only: []string{"api", "server", "e2e/kubectl"}, Why: "so that Kubernetes' internals can be replaced (D1)"},
		{Imports: []string{"k8s.io/apiextensions-apiserver/pkg/registry"}, Only: []string{"server"}, Why: "the API is served in one place (D2)"},
		{Imports: []string{"k8s.io/apiserver"}, Only: []string{"server"}, Why: "the API is served in one place (D2)"},
		{Imports: []string{"k8s.io/cri-streaming", "k8s.io/streaming", "github.com/gorilla/websocket"}, Only: []string{"server"}, Why: "what clients of exec and port-forward speak ends at the API; sessions have their own protocol"},
		{Imports: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "flag"}, Only: []string{"cmd", "e2e/kubectl", "e2e/bench"}, Why: "flags are wiring"},
	}
}
