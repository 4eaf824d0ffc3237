package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/agent/runtimetest"
	"headway.dev/headway/runtime/fake"
)

func TestSuite(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T) runtimetest.Machine {
		r := fake.New(fake.Config{
			Programs: func(c agent.ContainerSpec) fake.Program {
				switch c.Command[0] {
				case "stubborn":
					return fake.Program{Stubborn: true, Output: "ready\n"}
				case "exit3":
					return fake.Program{AtOnce: true, Code: 3}
				case "burn":
					return fake.Program{Cores: 1, Memory: 40 << 20}
				case "hello":
					return fake.Program{AtOnce: true, Output: "hello\nworld\n"}
				}
				return fake.Program{}
			},
			Commands: func(_ agent.ContainerState, command []string) fake.Reply {
				switch command[0] {
				case "exit3":
					return fake.Reply{Code: 3}
				case "hello":
					return fake.Reply{Output: "hello\nworld\n"}
				case "cat":
					return fake.Reply{Run: func(_ context.Context, req agent.ExecRequest) int32 {
						if _, err := io.Copy(req.Stdout, req.Stdin); err != nil {
							return 1
						}
						fmt.Fprintln(req.Stderr, "done")
						return 4
					}}
				case "size":
					return fake.Reply{Run: func(ctx context.Context, req agent.ExecRequest) int32 {
						for {
							select {
							case s := <-req.Sizes:
								fmt.Fprintf(req.Stdout, "%dx%d\n", s.Width, s.Height)
							case <-ctx.Done():
								return 137
							}
						}
					}}
				case "absent":
					return fake.Reply{Err: errors.New("there is no such program")}
				}
				return fake.Reply{Takes: time.Hour}
			},
			Ports: func(req agent.DialRequest) (net.Conn, error) {
				if req.Port != 8099 || !req.Inside {
					return nil, errors.New("connection refused")
				}
				near, far := net.Pipe()
				go func() {
					fmt.Fprintln(far, "hello")
					far.Close()
				}()
				return near, nil
			},
			Missing: func(image string) bool { return image == "absent:1" },
			Size:    func(string) int64 { return 1 << 20 },
			Fail: func(op, _ string) error {
				if op == "Pull" {
					return errors.New("nobody has it")
				}
				return nil
			},
		})
		return runtimetest.Machine{
			Runtime: r, Restart: func(*testing.T) agent.Runtime { return r }, Image: "hello:1", Absent: "absent:1",
			Sleep: []string{"sleep"}, Stubborn: []string{"stubborn"}, Exit3: []string{"exit3"}, Hello: []string{"hello"}, Burn: []string{"burn"},
			Cat: []string{"cat"}, Size: []string{"size"}, Serve: []string{"serve"},
		}
	})
}
