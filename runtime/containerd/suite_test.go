package containerd

import (
	"testing"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/agent/runtimetest"
)

// The suite that says what every agent.Runtime does.
func TestSuite(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Machine {
		n := newNode(t)
		return runtimetest.Machine{
			Runtime: n, Image: testImage, Absent: "headway.local/absent:1",
			Restart: func(t *testing.T) agent.Runtime {
				n.close()
				n.open()
				return n
			},
			Sleep:    []string{"/program", "sleep"},
			Stubborn: []string{"/program", "stubborn"},
			Exit3:    []string{"/program", "exit", "3"},
			Hello:    []string{"/program", "echo", "hello\nworld"},
			Burn:     []string{"/program", "burn"},
			Cat:      []string{"/program", "copy"},
			Size:     []string{"/program", "size"},
			Serve:    []string{"/program", "loopback", "8099"},
		}
	})
}
