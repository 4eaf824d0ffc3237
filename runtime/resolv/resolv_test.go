package resolv

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestParse(t *testing.T) {
	f := parse(`# made by hand
nameserver 192.0.2.1 # the first
nameserver	192.0.2.2
nameserver
search old.example
domain older.example
  search a.example. . b.example
options ndots:2 rotate
; options ndots:9
options timeout:1 ndots:3
sortlist 192.0.2.0
lookup file bind`)
	if got, want := f.String(), "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch a.example b.example\noptions ndots:3 rotate timeout:1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if again := parse(f.String()); again.String() != f.String() {
		t.Errorf("%q read again is %q", f, again)
	}
}

func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if f, err := Read(path); err != nil || f.String() != "" {
		t.Errorf("no file: %v, %v", f, err)
	}
	if err := os.WriteFile(path, []byte("nameserver 192.0.2.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(path); err != nil || !slices.Equal(f.Nameservers, []string{"192.0.2.1"}) {
		t.Errorf("%v, %v", f, err)
	}
	if err := os.WriteFile(path, make([]byte, longest+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "is longer than") {
		t.Errorf("a file that is too long: %v", err)
	}
	if _, err := Read(t.TempDir()); err == nil {
		t.Error("a folder: no error")
	}
}

func TestFor(t *testing.T) {
	node := File{Nameservers: []string{"192.0.2.53", "192.0.2.54"}, Searches: []string{"corp.example", "svc.cluster.local"}, Options: []string{"timeout:1"}}
	cluster := Cluster{Domain: "cluster.local", Server: netip.MustParseAddr("169.254.7.9")}
	const inCluster = "nameserver 169.254.7.9\nsearch shop.svc.cluster.local svc.cluster.local cluster.local corp.example\noptions ndots:5\n"
	const likeNode = "nameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch corp.example svc.cluster.local\noptions timeout:1\n"
	value := func(s string) *string { return &s }
	own := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.99", "192.0.2.53"}, Searches: []string{"own.example", "corp.example"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: value("2")}, {Name: "single-request"}, {Name: "timeout", Value: value("")}},
	}
	for name, c := range map[string]struct {
		spec    corev1.PodSpec
		cluster Cluster
		want    string
	}{
		"by default":                 {corev1.PodSpec{}, cluster, inCluster},
		"ClusterFirst":               {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst}, cluster, inCluster},
		"on the node's network":      {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, cluster, likeNode},
		"ClusterFirstWithHostNet":    {corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true}, cluster, inCluster},
		"Default":                    {corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, cluster, likeNode},
		"None":                       {corev1.PodSpec{DNSPolicy: corev1.DNSNone}, cluster, ""},
		"the cluster has no DNS":     {corev1.PodSpec{}, Cluster{Domain: "cluster.local"}, likeNode},
		"None with its own":          {corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: own}, cluster, "nameserver 192.0.2.99\nnameserver 192.0.2.53\nsearch own.example corp.example\noptions ndots:2 single-request timeout\n"},
		"ClusterFirst with its own":  {corev1.PodSpec{DNSConfig: own}, cluster, "nameserver 169.254.7.9\nnameserver 192.0.2.99\nnameserver 192.0.2.53\nsearch shop.svc.cluster.local svc.cluster.local cluster.local corp.example own.example\noptions ndots:2 single-request timeout\n"},
		"Default with its own":       {corev1.PodSpec{DNSPolicy: corev1.DNSDefault, DNSConfig: own}, cluster, "nameserver 192.0.2.53\nnameserver 192.0.2.54\nnameserver 192.0.2.99\nsearch corp.example svc.cluster.local own.example\noptions timeout ndots:2 single-request\n"},
		"a domain of the user's own": {corev1.PodSpec{}, Cluster{Domain: "k.example", Server: cluster.Server}, "nameserver 169.254.7.9\nsearch shop.svc.k.example svc.k.example k.example corp.example svc.cluster.local\noptions ndots:5\n"},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}, Spec: c.spec}
		before := fmt.Sprint(node, pod)
		f, cut := For(pod, c.cluster, node)
		if f.String() != c.want || cut != "" {
			t.Errorf("%s:\n%swant\n%s(%s)", name, f, c.want, cut)
		}
		if fmt.Sprint(node, pod) != before {
			t.Errorf("%s: the input was changed", name)
		}
	}
}

func TestWhatLibcDoesNotReadIsLeftOut(t *testing.T) {
	var many []string
	for i := range 40 {
		many = append(many, fmt.Sprintf("d%d.example", i))
	}
	long := strings.Repeat("a.", 127) + "aa"
	wide := strings.Repeat("b", 100) + ".example"
	for name, c := range map[string]struct {
		in              File
		servers, fields int
		cut             string
	}{
		"servers":       {File{Nameservers: []string{"1", "2", "3", "4"}}, 3, 0, "nameservers after the first 3: 4"},
		"searches":      {File{Searches: many}, 0, 32, "d32.example d33.example"},
		"a long one":    {File{Searches: []string{"x", long, "y"}}, 0, 2, long},
		"a long line":   {File{Searches: slices.Repeat([]string{wide}, 32)}, 0, 18, wide},
		"all in limits": {File{Nameservers: []string{"1", "2", "3"}, Searches: many[:32]}, 3, 32, ""},
	} {
		f, cut := c.in.fitted()
		if len(f.Nameservers) != c.servers || len(f.Searches) != c.fields || !strings.Contains(cut, c.cut) || (cut == "") != (c.cut == "") {
			t.Errorf("%s: %d servers, %d searches, %q", name, len(f.Nameservers), len(f.Searches), cut)
		}
		if line := strings.Join(f.Searches, " "); len(line) > searchesLength {
			t.Errorf("%s: a line of %d characters", name, len(line))
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("nameserver 192.0.2.1\nsearch a b\noptions ndots:5\n")
	f.Add("domain .\n#;\x00\nsearch . a..")
	f.Fuzz(func(t *testing.T, text string) {
		file := parse(text)
		if again := parse(file.String()); again.String() != file.String() {
			t.Errorf("%q read again is %q", file, again)
		}
	})
}
