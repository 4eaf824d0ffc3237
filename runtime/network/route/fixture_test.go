package route

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/knftables"
)

// TestMain runs the tests in a network namespace of their own: what they do to
// the kernel touches nobody, and goes with them.
func TestMain(m *testing.M) {
	const inside = "HEADWAY_ROUTE_TEST_INSIDE"
	if os.Getuid() != 0 || os.Getenv(inside) != "" {
		m.Run()
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "run tests in a network namespace:", err)
		os.Exit(1)
	}
}

// clusterIPs is the tests' range of cluster IPs.
var clusterIPs = netip.MustParsePrefix("10.43.0.0/16")

func testConfig(t testing.TB, table string) Config {
	return Config{
		Table: table, Node: "here", Bridge: "hwroute0", Services: clusterIPs,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
}

// service makes one with a TCP port 80 that its endpoints have as 8080.
func testService(name, ip string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIP, s.Spec.Type = ip, corev1.ServiceTypeClusterIP
	s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
	for _, c := range change {
		c(s)
	}
	return s
}

func testSlice(service string, port int32, eps ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: &port, Protocol: new(corev1.ProtocolTCP)}},
		Endpoints:   eps,
	}
}

// ready makes a ready endpoint of this node.
func ready(ip string, change ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: new("here"), Conditions: discoveryv1.EndpointConditions{
		Ready: new(true), Serving: new(true), Terminating: new(false),
	}}
	for _, c := range change {
		c(&e)
	}
	return e
}

func unready(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Serving = new(false), new(false)
}

func terminating(e *discoveryv1.Endpoint) {
	e.Conditions.Ready, e.Conditions.Terminating = new(false), new(true)
}

func elsewhere(e *discoveryv1.Endpoint) { e.NodeName = new("elsewhere") }

// fakeReader reads knftables' fake as kernel reads the real thing.
type fakeReader struct {
	fake *knftables.Fake
	gen  uint32
}

func (f *fakeReader) generation() (uint32, error) { return f.gen, nil }

func (f *fakeReader) observe() (*observed, error) {
	table := f.fake.Table
	if table == nil {
		return nil, nil
	}
	o := &observed{rules: map[string]int{}, elements: map[key]value{}}
	for name, c := range table.Chains {
		o.rules[name] = len(c.Rules)
	}
	for s := range setCount {
		shape := s.shape()
		var elements []*knftables.Element
		switch {
		case len(shape.value) > 0 && table.Maps[shape.name] != nil:
			elements = table.Maps[shape.name].Elements
		case len(shape.value) == 0 && table.Sets[shape.name] != nil:
			elements = table.Sets[shape.name].Elements
		default:
			o.elements = nil
			return o, nil
		}
		for _, e := range elements {
			k := parseWords(shape.key, e.Key)
			v := [3]uint32{}
			if len(shape.value) > 0 && shape.value[0] == verdict {
				chain, _ := strings.CutPrefix(e.Value[0], "goto ")
				if chain == "drop" {
					chain = ""
				}
				got := verdictValue(s, 0, chain)
				v[0], v[1] = got.a, got.b
			} else {
				v = parseWords(shape.value, e.Value)
			}
			o.elements[key{s, k[0], k[1], k[2]}] = value{v[0], v[1]}
		}
	}
	return o, nil
}

func (f *fakeReader) lookup(k key) (value, bool, error) {
	o, err := f.observe()
	if o == nil {
		return value{}, false, err
	}
	v, ok := o.elements[k]
	return v, ok, err
}

// parseWords is the reverse of text.
func parseWords(fields []field, texts []string) (words [3]uint32) {
	for i, f := range fields {
		switch f {
		case address:
			words[i] = word(netip.MustParseAddr(texts[i]))
		case protocol:
			words[i] = map[string]uint32{"tcp": tcp, "udp": udp, "sctp": sctp}[texts[i]]
		case id:
			major, minor, _ := strings.Cut(texts[i], ":")
			a, errA := strconv.ParseUint(major, 16, 16)
			b, errB := strconv.ParseUint(minor, 16, 16)
			if errA != nil || errB != nil {
				panic(texts[i])
			}
			words[i] = uint32(a)<<16 | uint32(b)
		default:
			n, err := strconv.ParseUint(texts[i], 0, 32)
			if err != nil {
				panic(err)
			}
			words[i] = uint32(n)
		}
	}
	return words
}

// fakeRouter has no bridge, since the fake has no links.
func fakeRouter(t testing.TB) (*Router, *knftables.Fake) {
	fake := knftables.NewFake(knftables.IPv4Family, "test")
	cfg := testConfig(t, "test")
	cfg.Bridge = ""
	return newRouter(cfg, fake, &fakeReader{fake: fake}), fake
}
