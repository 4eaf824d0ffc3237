package route

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"pgregory.net/rapid"
)

// What somebody takes away comes back, be it all or one element.
func TestRepair(t *testing.T) {
	l := newLab(t)
	a, b, client := l.pod(), l.pod(), l.pod()
	a.serve("tcp", 8080)
	b.serve("tcp", 8080)
	sticky := testService("sticky", "10.43.0.11", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	l.set(sticky, ready(a.ip), ready(b.ip))
	l.set(testService("web", "10.43.0.10"), ready(a.ip), ready(b.ip))
	good := l.observe(l.r)
	other := l.router("hwroute-other") // whose changes are none of ours
	for _, damage := range []string{
		"flush ruleset",
		"delete table ip hwroute",
		"flush chain ip hwroute prerouting",
		"flush map ip hwroute slots",
		"delete element ip hwroute inner { 10.43.0.10 . tcp . 80 }",
		"add element ip hwroute inner { 10.43.0.77 . tcp . 80 : 4000:1 }",
		"add rule ip hwroute spread-2 drop",
		"flush set ip hwroute hairpins",
		"flush map ip hwroute inner; delete map ip hwroute affinity",
	} {
		out, err := exec.Command("nft", damage).CombinedOutput()
		if err != nil && !strings.Contains(damage, "affinity") { // that one is refused: it is in use
			t.Fatalf("%s: %v: %s", damage, err, out)
		}
		l.r.nextAll = time.Time{}
		if err := l.r.check(t.Context()); err != nil {
			t.Fatalf("%s: %v", damage, err)
		}
		if err := same(l.observe(l.r), good); err != nil {
			t.Errorf("after %s: %v", damage, err)
		}
		client.servers("10.43.0.10:80", a, b)
	}
	sh(t, "ip route del 10.43.0.0/16")
	if err := l.r.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.node().servers("10.43.0.10:80", a, b)
	// A change that meets a damaged table repairs it at once.
	sh(t, "nft flush ruleset")
	l.set(testService("web", "10.43.0.10"), ready(a.ip))
	client.servers("10.43.0.10:80", a)
	// Somebody else's changes cost a comparison and no write.
	other.SetService(testService("web", "10.43.0.10"))
	if err := other.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.r.nextAll = time.Time{}
	gen := l.generation()
	for range 3 { // a chain that is not used any more goes with the first
		if err := l.r.check(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if now := l.generation(); now > gen+1 {
		t.Errorf("%d writes without a reason", now-gen)
	}
}

func (l *lab) generation() uint32 {
	l.t.Helper()
	gen, err := l.r.kernel.generation()
	if err != nil {
		l.t.Fatal(err)
	}
	return gen
}

// R8: another process that takes over changes nothing in the kernel, and writes
// only what came meanwhile.
func TestR8_RestartChangesNothing(t *testing.T) {
	l := newLab(t)
	a, b, client := l.pod(), l.pod(), l.pod()
	a.serve("tcp", 8080)
	b.serve("tcp", 8080)
	web := testService("web", "10.43.0.10", nodePort(30080))
	l.set(web, ready(a.ip), ready(b.ip))
	// Connections begin all the time.
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if _, _, err := client.ask("tcp", "10.43.0.10:80", time.Minute); err != nil {
				stopped <- err
				return
			}
		}
	}()
	gen := l.generation()
	for range 20 {
		l.r = l.router("hwroute")
		l.r.SetSlice(testSlice("web", 8080, ready(a.ip), ready(b.ip)))
		l.r.SetService(web)
		l.sync()
	}
	if now := l.generation(); now != gen {
		t.Errorf("%d changes by restarts", now-gen)
	}
	// One with other rules: the table is replaced at once.
	for i := range 20 {
		cfg := testConfig(t, "hwroute")
		cfg.Services = netip.PrefixFrom(clusterIPs.Addr(), 17-i%2)
		r, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		l.r = r
		l.set(web, ready(a.ip), ready(b.ip))
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Errorf("a connection failed: %v", err)
	}
	if now := l.generation(); now != gen+20 {
		t.Errorf("%d changes by other rules, want 20", now-gen)
	}
}

// 10,000 changes of endpoints while connections begin all the time: none fails,
// and none reaches an endpoint that had been taken out before it began.
func TestNoConnectionToAStaleEndpoint(t *testing.T) {
	changes := 10_000
	if testing.Short() {
		changes = 1000
	}
	l := newLab(t)
	const pods, services = 4, 6
	var backends []*machine
	for range pods {
		p := l.pod()
		p.serve("tcp", 8080)
		backends = append(backends, p)
	}
	client := l.pod()
	// out says since which Sync a pod is out of a Service; 0: it is in.
	var out [services][pods]atomic.Int64
	var syncs, asked atomic.Int64
	made := 0
	tell := func(in func(service, pod int) bool) {
		for s := range services {
			object := testService(fmt.Sprint("web", s), fmt.Sprint("10.43.0.1", s))
			if s%2 == 1 {
				object.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			}
			slice := testSlice(object.Name, 8080)
			for i, p := range backends {
				was := out[s][i].Load() == 0
				if in(s, i) {
					slice.Endpoints = append(slice.Endpoints, ready(p.ip))
					out[s][i].Store(0)
				}
				if was != in(s, i) {
					made++
				}
			}
			l.r.SetService(object)
			l.r.SetSlice(slice)
		}
		l.sync()
		n := syncs.Add(1)
		for s := range services {
			for i := range backends {
				if !in(s, i) {
					out[s][i].CompareAndSwap(0, n)
				}
			}
		}
	}
	tell(func(int, int) bool { return true })
	var askers sync.WaitGroup
	stop := make(chan struct{})
	failures := make(chan error, 2)
	for range cap(failures) {
		askers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				s, began := n%services, syncs.Load()
				server, _, err := client.ask("tcp", fmt.Sprintf("10.43.0.1%d:80", s), time.Minute)
				asked.Add(1)
				for i, p := range backends {
					if since := out[s][i].Load(); p.ip == server && since > 0 && since <= began {
						err = fmt.Errorf("%s answered a connection of Sync %d, and was out since %d", server, began, since)
					}
				}
				if err != nil {
					failures <- fmt.Errorf("Service %d: %w", s, err)
					return
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	for made < changes {
		var in [services]int // bits of the pods, at least one
		for s := range in {
			in[s] = 1 + random.IntN(1<<pods-1)
		}
		tell(func(service, pod int) bool { return in[service]>>pod&1 == 1 })
	}
	close(stop)
	askers.Wait()
	close(failures)
	for err := range failures {
		t.Error(err)
	}
	if asked.Load() < syncs.Load() {
		t.Errorf("only %d connections", asked.Load())
	}
	t.Logf("%d changes in %d Syncs, %d connections", made, syncs.Load(), asked.Load())
}

// UDP has no connections, but the kernel remembers some: those to an endpoint
// that no longer answers are forgotten, and those from before there was one.
func TestUDPFlows(t *testing.T) {
	l := newLab(t)
	a, b, client := l.pod(), l.pod(), l.pod()
	a.serve("udp", 8080)
	b.serve("udp", 8080)
	l.node().serve("udp", 30053)
	dns := testService("dns", "10.43.0.10", protocolTo(corev1.ProtocolUDP), nodePort(30053))
	flow := func(m *machine, at string) func() string {
		c := m.dial("udp", at)
		return func() string {
			server, _, err := talk(c, "udp", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			return server
		}
	}
	// To the node's own server on that port, before the Service is there.
	early := flow(l.outside, nodeIP+":30053")
	if got := early(); got != nodeIP {
		t.Fatal(got)
	}
	l.set(dns, ready(a.ip))
	if got := early(); got != a.ip {
		t.Errorf("a flow of before goes on to %s", got)
	}
	inside := flow(client, "10.43.0.10:80")
	if got := inside(); got != a.ip {
		t.Fatal(got)
	}
	l.set(dns, ready(a.ip, terminating), ready(b.ip))
	if got := inside(); got != a.ip {
		t.Errorf("a flow leaves an endpoint that still serves, for %s", got)
	}
	l.set(dns, ready(b.ip))
	if got := inside(); got != b.ip {
		t.Errorf("a flow goes on to %s", got)
	}
	// An endpoint that went while no process was there to see it.
	l.r = l.router("hwroute")
	l.set(dns, ready(a.ip))
	if got := inside(); got != a.ip {
		t.Errorf("after a restart a flow goes on to %s", got)
	}
	if got := early(); got != a.ip {
		t.Errorf("after a restart the node port's flow goes on to %s", got)
	}
}

// In the kernel too, the changes leave what a new table would have.
func TestChangesEqualRebuildInKernel(t *testing.T) {
	l := newLab(t)
	again := l.router("hwroute-again")
	rapid.Check(t, func(rt *rapid.T) {
		l.r = l.router("hwroute")
		w := &world{map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}, map[netip.Addr]bool{}}
		for range rapid.IntRange(1, 10).Draw(rt, "steps") {
			for range rapid.IntRange(1, 3).Draw(rt, "at once") {
				w.step(rt, l.r)
			}
			if err := l.r.Sync(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		l.r.nextAll = time.Time{}
		for range 2 {
			if err := l.r.check(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		if err := again.Destroy(t.Context()); err != nil {
			rt.Fatal(err)
		}
		cfg := testConfig(t, "hwroute-again")
		again, err := New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		w.tell(again)
		if err := again.Sync(t.Context()); err != nil {
			rt.Fatal(err)
		}
		compare(rt, l.r, again)
	})
}

func TestDestroyLeavesNothing(t *testing.T) {
	l := newLab(t)
	before := state(t)
	for i := range 5 {
		l.set(testService(fmt.Sprint("s", i), fmt.Sprint("10.43.0.1", i), nodePort(int32(30080+i))), ready("10.42.0.9"))
	}
	if state(t) == before {
		t.Fatal("nothing was made")
	}
	if err := l.r.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := state(t); after != before {
		t.Errorf("left:\n%s\nbefore:\n%s", after, before)
	}
	if err := l.r.Destroy(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

func state(t *testing.T) string {
	t.Helper()
	// The kernel gives each interface its link-local addresses when it likes.
	out, err := exec.Command("sh", "-ec", "nft list ruleset; ip route show table all | grep -v -e ff00 -e fe80; ip rule").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func TestExplain(t *testing.T) {
	l := newLab(t)
	a, b := l.pod(), l.pod()
	explain := func(service, port string) string {
		t.Helper()
		p, err := l.r.Explain("default", service, port)
		if err != nil {
			t.Fatal(err)
		}
		return p.String()
	}
	has := func(got string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%q is not in\n%s", w, got)
			}
		}
	}
	has(explain("web", "80"), "this node knows no Service default/web")
	l.set(testService("web", "10.43.0.10"), ready(a.ip), ready(b.ip, terminating), ready("10.42.0.99", unready))
	got := explain("web", "80")
	has(got, "ClusterIP default/web", "10.43.0.10:80/tcp", a.ip+":8080 ready, on this node, gets connections",
		b.ip+":8080 terminating, still serving, on this node", "10.42.0.99:8080 not ready",
		"inner { 10.43.0.10 . tcp . 80 } : ", ": goto spread-1", ": "+a.ip+" . 8080")
	if strings.Contains(got, "STOPS") {
		t.Error(got)
	}
	has(explain("web", "81"), "STOPS", "no port 81, only 80")
	sh(t, "nft flush map ip hwroute inner")
	has(explain("web", ""), "STOPS", "the kernel does not have the Service's rules")
	l.r.nextAll = time.Time{}
	if err := l.r.check(t.Context()); err != nil {
		t.Fatal(err)
	}
	sh(t, "nft flush map ip hwroute members")
	has(explain("web", ""), "STOPS", "lack an endpoint")
	l.set(testService("web", "10.43.0.10"), ready("10.42.0.99", unready))
	has(explain("web", ""), "STOPS", "no endpoint is ready", "refused { 10.43.0.10 . tcp . 80 } : goto turn-away")
	l.set(testService("web", "10.43.0.10", insideLocal), ready(a.ip, elsewhere))
	has(explain("web", ""), "STOPS", "no endpoint is on this node", "internalTrafficPolicy")
	l.set(testService("web", "10.43.0.10", func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"10.43.0.11"} }), ready("10.43.0.12", elsewhere))
	has(explain("web", ""), "STOPS", "10.43.0.12:8080 is the address of a Service", "not at 10.43.0.11: it is an address of a pod or of a Service")
	l.set(testService("web", "None"))
	has(explain("web", ""), "headless", "endpoints' own addresses")
}
