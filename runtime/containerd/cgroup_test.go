package containerd

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A machine that does not let us turn the cpu controller on runs pods without it.
func TestTurnOnCPU(t *testing.T) {
	for _, c := range []struct {
		name, controllers, on, then string
		want                        bool
		says                        string
	}{
		{name: "not there", controllers: "memory pids", on: "memory", then: "memory"},
		{name: "on", controllers: "cpu memory", on: "memory cpu", then: "memory cpu", want: true},
		// A file takes the order without obeying it.
		{name: "not obeyed", controllers: "cpu memory", on: "memory", then: "+cpu", says: "cannot be turned on"},
		// A file that even root cannot write.
		{name: "refused", controllers: "cpu memory", on: "/proc/sys/kernel/osrelease", says: "permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			write := func(file, content string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(root, file), []byte(content+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("cgroup.controllers", c.controllers)
			file := filepath.Join(root, "cgroup.subtree_control")
			if strings.HasPrefix(c.on, "/") {
				if err := os.Symlink(c.on, file); err != nil {
					t.Fatal(err)
				}
			} else {
				write("cgroup.subtree_control", c.on)
			}
			var log bytes.Buffer
			got, err := turnOnCPU(root, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil || got != c.want {
				t.Errorf("%t: %v", got, err)
			}
			if !strings.Contains(log.String(), c.says) || (c.says == "") != (log.Len() == 0) {
				t.Errorf("the log is %q", log.String())
			}
			if now, err := os.ReadFile(file); err != nil || c.then != "" && strings.TrimSpace(string(now)) != c.then {
				t.Errorf("it says %q: %v", now, err)
			}
		})
	}
	if on, err := turnOnCPU(t.TempDir(), slog.New(slog.DiscardHandler)); err == nil || on {
		t.Errorf("no cgroups at all: %t %v", on, err)
	}
}
