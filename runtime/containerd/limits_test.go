package containerd

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"headway.dev/headway/runtime/agent"
)

// A container gets the huge pages of its limits, and none of a size that it does not name.
func TestHugePages(t *testing.T) {
	limits := func(list ...string) corev1.ResourceList {
		out := corev1.ResourceList{"memory": resource.MustParse("1Gi")}
		for i := 0; i < len(list); i += 2 {
			out[corev1.ResourceName(list[i])] = resource.MustParse(list[i+1])
		}
		return out
	}
	for _, c := range []struct {
		name   string
		limits corev1.ResourceList
		pages  []int64
		tree   string
		want   []specs.LinuxHugepageLimit
		says   string
	}{
		{"asked for", limits("hugepages-2Mi", "4Mi"), []int64{2 << 20, 1 << 30}, "/cg", []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "1GB", Limit: 0}}, ""},
		{"both", limits("hugepages-2Mi", "4Mi", "hugepages-1Gi", "2Gi"), []int64{2 << 20, 1 << 30}, "/cg", []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}, {Pagesize: "1GB", Limit: 2 << 30}}, ""},
		{"not asked for", limits(), []int64{64 << 10}, "/cg", []specs.LinuxHugepageLimit{{Pagesize: "64KB", Limit: 0}}, ""},
		{"not asked for, and no controller", limits(), []int64{2 << 20}, "", nil, ""},
		{"no controller", limits("hugepages-2Mi", "4Mi"), []int64{2 << 20}, "", nil, "no hugetlb controller"},
		{"another size", limits("hugepages-1Gi", "1Gi"), []int64{2 << 20}, "/cg", nil, "no pages of that size"},
	} {
		s, err := drawn(func(b *blueprint) {
			b.spec.Container.Resources.Limits, b.pages, b.cgroups.hugetlb = c.limits, c.pages, c.tree
		}).build()
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
		case err != nil || !reflect.DeepEqual(s.Linux.Resources.HugepageLimits, c.want):
			t.Errorf("%s: %+v %v", c.name, s, err)
		}
	}
}

// On version 2 the kernel kills all of a container when one of its processes finds no
// memory, as in Kubernetes.
func TestKilledTogether(t *testing.T) {
	for _, groups := range []bool{false, true} {
		s, err := drawn(func(b *blueprint) { b.cgroups.groups = groups }).build()
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Linux.Resources.Unified["memory.oom.group"]; (got == "1") != groups {
			t.Errorf("groups %t: %q", groups, got)
		}
	}
}

func TestPageSizes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"hugepages-1048576kB", "hugepages-2048kB", "other"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := pageSizes(dir); err != nil || !reflect.DeepEqual(got, []int64{2 << 20, 1 << 30}) {
		t.Errorf("%v %v", got, err)
	}
	if got, err := pageSizes(filepath.Join(dir, "none")); err != nil || got != nil {
		t.Errorf("%v %v", got, err)
	}
}

// tree is a folder of files that say something.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func says(t *testing.T, root, file, want string) {
	t.Helper()
	if got, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(got) != want {
		t.Errorf("%s says %q, %v; want %q", file, got, err, want)
	}
}

func TestBounds(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	one := tree(t, map[string]string{"headway/memory.use_hierarchy": "0\n", "headway/memory.limit_in_bytes": ""})
	(cgroups{memory: one}).bound("headway", 1<<30, logger)
	says(t, one, "headway/memory.limit_in_bytes", "1073741824")
	says(t, one, "headway/memory.use_hierarchy", "1")

	two := tree(t, map[string]string{"cgroup.subtree_control": "memory\n", "headway/cgroup.subtree_control": "memory\n", "headway/memory.max": ""})
	c := cgroups{memory: two, pids: two, unified: true}
	c.bound("headway", 1<<20, logger)
	says(t, two, "headway/memory.max", "1048576")
	if err := c.boundPIDs("headway/podx", 100); err != nil {
		t.Fatal(err)
	}
	says(t, two, "cgroup.subtree_control", "+pids") // a file takes the word as it is
	says(t, two, "headway/cgroup.subtree_control", "+pids")
	says(t, two, "headway/podx/pids.max", "100")
	if log.Len() != 0 {
		t.Errorf("the log is %q", log.String())
	}
	(cgroups{memory: filepath.Join(one, "headway/memory.limit_in_bytes")}).bound("headway", 1, logger) // a file is no folder
	if !strings.Contains(log.String(), "reserved memory") {
		t.Errorf("the log is %q", log.String())
	}
	if err := (cgroups{}).boundPIDs("headway/podx", 100); err == nil || !strings.Contains(err.Error(), "--pod-max-pids") {
		t.Errorf("no controller: %v", err)
	}
}

// A log counts with what was rotated out of it, and no other's does.
func TestLogFiles(t *testing.T) {
	root := tree(t, map[string]string{"main/1.log": "12345", "main/1.log.1": "1234567890", "main/2.log": "123", "main/11.log": "1"})
	if got, err := logFiles(filepath.Join(root, "main/1.log")); err != nil || got.Bytes != 15 || got.Inodes != 2 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := logFiles(filepath.Join(root, "none/1.log")); err != nil || got.Bytes != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

// What a container writes into the files that it has of ours counts, too: it would fill
// the disk past any limit else.
func TestWrittenIntoOurFiles(t *testing.T) {
	n := newNode(t)
	pod := testPod("sleep")
	c := n.start(pod)
	written := func() (own, shared int64) {
		t.Helper()
		list, err := n.Written(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.Container == "" {
				shared += w.Bytes
			} else {
				own += w.Bytes
			}
		}
		return own, shared
	}
	if _, shared := written(); shared != 0 {
		t.Errorf("files that nobody wrote to count %d bytes", shared)
	}
	before, _ := written()
	for _, to := range []string{"/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/dev/termination-log"} {
		if code, err := n.Exec(t.Context(), agent.ExecRequest{ID: c.ID, Command: []string{"/program", "fill", to}}); err != nil || code != 0 {
			t.Fatal(to, code, err)
		}
	}
	if own, shared := written(); own-before < 1<<20 || shared < 3<<20 {
		t.Errorf("%d and %d bytes, want 1 MiB more and 3 MiB", own-before, shared)
	}
}
