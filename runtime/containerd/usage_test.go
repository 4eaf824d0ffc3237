package containerd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The working set is what is used without the files that were not used lately, as
// Kubernetes counts it; CPU time has its own unit in each version.
func TestUsageFiles(t *testing.T) {
	for _, c := range []struct {
		name    string
		unified bool
		files   map[string]string
		cpu     time.Duration
		memory  int64
		fails   string // with these words; "gone": the cgroup is not there
	}{
		{name: "version 1", files: map[string]string{"cpuacct.usage": "1500000000\n", "memory.usage_in_bytes": "5000\n", "memory.stat": "inactive_file 7\nrss 3000\ntotal_inactive_file 1000\n"}, cpu: 1500 * time.Millisecond, memory: 4000},
		{name: "version 2", unified: true, files: map[string]string{"cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "memory.current": "5000\n", "memory.stat": "anon 3000\ninactive_file 1000\n"}, cpu: 1500 * time.Millisecond, memory: 4000},
		{name: "version 2 without a memory controller", unified: true, files: map[string]string{"cpu.stat": "usage_usec 20\n"}, cpu: 20 * time.Microsecond, memory: -1},
		{name: "read at two moments", files: map[string]string{"cpuacct.usage": "1", "memory.usage_in_bytes": "900\n", "memory.stat": "total_inactive_file 1000\n"}, cpu: 1},
		{name: "gone", fails: "gone"},
		{name: "gone meanwhile", files: map[string]string{"cpuacct.usage": "1"}, fails: "gone"},
		{name: "not a number", files: map[string]string{"cpuacct.usage": "much"}, fails: "read CPU time"},
		{name: "version 2, not a number", unified: true, files: map[string]string{"cpu.stat": "user_usec 1\n"}, fails: "read CPU time"},
		{name: "no files counted", files: map[string]string{"cpuacct.usage": "1", "memory.usage_in_bytes": "900\n", "memory.stat": "rss 1\n"}, fails: "total_inactive_file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			if c.files != nil {
				if err := os.Mkdir(filepath.Join(root, "pod"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(root, "pod", name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			cpu, memory, err := cgroups{memory: root, cpuacct: root, unified: c.unified}.usage("pod")
			switch {
			case c.fails == "gone" && gone(err):
			case c.fails != "" && (err == nil || gone(err) || !strings.Contains(err.Error(), c.fails)):
				t.Errorf("%s, %d, %v", cpu, memory, err)
			case c.fails == "" && (err != nil || cpu != c.cpu || memory != c.memory):
				t.Errorf("%s, %d, %v; want %s, %d", cpu, memory, err, c.cpu, c.memory)
			}
		})
	}
}
