package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// contents is everything in the maps, for comparing.
func contents(n *names) map[string]any {
	out := map[string]any{"count": n.count}
	for name, m := range map[string]*sync.Map{"services": &n.services, "slices": &n.slices, "ips": &n.clusterIPs, "namespaces": &n.namespaces} {
		for k, v := range m.Range {
			out[fmt.Sprint(name, k)] = v
		}
	}
	for k, v := range n.endpoints.Range {
		keys := slices.Clone(v.([]key))
		slices.SortFunc(keys, func(a, b key) int {
			return slices.Compare([]string{a.namespace, a.name}, []string{b.namespace, b.name})
		})
		out[fmt.Sprint("endpoints", k)] = keys
	}
	return out
}

// Whatever is set and unset in whatever order: what is known is what setting only
// the rest would have made.
func TestChangesEndWhereAFreshStartDoes(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 4))
		var n names
		services, endpointSlices := map[key]*corev1.Service{}, map[key]*discoveryv1.EndpointSlice{}
		pick := func(prefix string, of int) string { return fmt.Sprint(prefix, r.IntN(of)) }
		for range 300 {
			k := key{pick("ns", 2), pick("s", 5)}
			switch r.IntN(6) {
			case 0:
				n.UnsetService(k.namespace, k.name)
				delete(services, k)
			case 1, 2:
				s := clusterIP(k.namespace, k.name, []string{"None", "", "10.43.0." + pick("", 3)}[r.IntN(3)], named("p", int32(r.IntN(2)+1), "TCP"))
				if r.IntN(5) == 0 {
					s = external(k.namespace, k.name, pick("x", 2))
				}
				for other, o := range services { // the store gives no address twice
					if other != k && o.Spec.ClusterIP == s.Spec.ClusterIP && s.Spec.ClusterIP != "None" {
						s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
					}
				}
				n.SetService(s)
				services[k] = s
			case 3:
				n.UnsetSlice(k.namespace, k.name)
				delete(endpointSlices, k)
			default:
				var endpoints []discoveryv1.Endpoint
				for range r.IntN(4) {
					e := ready("10.42.0."+pick("", 4), []string{"", pick("h", 3)}[r.IntN(2)])
					e.Conditions.Ready = ptr(r.IntN(3) > 0)
					endpoints = append(endpoints, e)
				}
				es := endpointSlice(k.namespace, k.name, pick("s", 5), nil, endpoints...)
				n.SetSlice(es)
				endpointSlices[k] = es
			}
		}
		var fresh names
		for _, es := range endpointSlices {
			fresh.SetSlice(es)
		}
		for _, s := range services {
			fresh.SetService(s)
		}
		if got, want := contents(&n), contents(&fresh); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d:\n%v\nwant\n%v", seed, got, want)
		}
	}
}

func TestSettingTheSameChangesNothing(t *testing.T) {
	z := testZone()
	before := map[key]any{}
	for k, v := range z.services.Range {
		before[k.(key)] = v
	}
	shop(&z.names)
	for k, v := range z.services.Range {
		if before[k.(key)] != v {
			t.Errorf("%v was replaced", k)
		}
	}
}

// Those who ask never wait for those who set, and never see half of a change: the
// Service has the addresses of one version or of the other.
func TestAnswersBesideChanges(t *testing.T) {
	z := testZone()
	versions := []*discoveryv1.EndpointSlice{
		endpointSlice("shop", "v", "flip", nil, ready("10.42.5.1", "a"), ready("10.42.5.2", "b")),
		endpointSlice("shop", "v", "flip", nil, ready("10.42.6.1", "a"), ready("10.42.6.2", "b")),
	}
	z.SetService(clusterIP("shop", "flip", "None"))
	z.SetSlice(versions[0])
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range runtime.NumCPU() {
		wg.Go(func() {
			q := dns.Question{Name: "flip.shop.svc.cluster.local.", Qtype: dns.TypeA, Qclass: dns.ClassINET}
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, _ := z.answer(q, q.Name)
				if got := told(r); got != "10.42.5.1, 10.42.5.2" && got != "10.42.6.1, 10.42.6.2" {
					t.Errorf("half a change: %s", got)
					return
				}
			}
		})
	}
	for i := range 2000 {
		z.SetSlice(versions[i%2])
	}
	close(stop)
	wg.Wait()
}

// many fills n with Services of which each has a slice of two endpoints.
func many(n *names, services int) {
	for i := range services {
		namespace, name := fmt.Sprint("ns-", i%100), fmt.Sprint("service-", i)
		ip := netip.AddrFrom4([4]byte{10, 43, byte(i >> 8), byte(i)})
		n.SetService(clusterIP(namespace, name, ip.String(), named("http", 80, "TCP")))
		n.SetSlice(manySlice(namespace, name, i, 0))
	}
}

func manySlice(namespace, name string, i, shift int) *discoveryv1.EndpointSlice {
	at := func(n int) string {
		return netip.AddrFrom4([4]byte{10, 44 + byte(n>>16), byte(n >> 8), byte(n)}).String()
	}
	return endpointSlice(namespace, name+"-x", name, []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr[int32](8080)}},
		ready(at(2*i), ""), ready(at(2*i+1+shift), ""))
}

func BenchmarkChangeOfOneSlice(b *testing.B) {
	for _, size := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", size), func(b *testing.B) {
			var n names
			many(&n, size)
			versions := []*discoveryv1.EndpointSlice{manySlice("ns-5", "service-5", 5, 100000), manySlice("ns-5", "service-5", 5, 100001)}
			b.ResetTimer()
			for i := range b.N {
				n.SetSlice(versions[i%2])
			}
		})
	}
}

// BenchmarkMemory prints what 10,000 Services with two endpoints each take, the
// objects they were made from not counted.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var n names
		many(&n, 10000)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB/10000-services")
		runtime.KeepAlive(&n)
	}
}
