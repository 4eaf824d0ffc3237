package nodes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/nodes"
)

// machine is a node with one running pod, in which scripts are commands and ports.
type machine struct {
	*cluster
	node *node
	pod  *corev1.Pod

	commands atomic.Int32 // that run
	mu       sync.Mutex
	far      []net.Conn // the pod's ends of connections
	asked    []agent.DialRequest
}

func reachable(t *testing.T, commands map[string]func(context.Context, agent.ExecRequest) int32) *machine {
	t.Helper()
	m := &machine{cluster: open(t)}
	engine := fake.New(fake.Config{
		Commands: func(_ agent.ContainerState, command []string) fake.Reply {
			run := commands[command[0]]
			if run == nil {
				return fake.Reply{Err: fmt.Errorf("%s: no such program", command[0])}
			}
			return fake.Reply{Run: func(ctx context.Context, req agent.ExecRequest) int32 {
				m.commands.Add(1)
				defer m.commands.Add(-1)
				return run(ctx, req)
			}}
		},
		Ports: func(req agent.DialRequest) (net.Conn, error) {
			if req.Port != 80 {
				return nil, errors.New("connection refused")
			}
			near, far := net.Pipe()
			m.mu.Lock()
			defer m.mu.Unlock()
			m.far, m.asked = append(m.far, far), append(m.asked, req)
			return near, nil
		},
	})
	m.node = m.cluster.node("n1", t.TempDir(), engine)
	m.pod = pod("p1", "n1")
	m.create(m.pod)
	synctest.Wait()
	m.pod = live(m.cluster, m.pod)
	return m
}

func (m *machine) dial() (near, far net.Conn) {
	m.t.Helper()
	near, err := m.nodes.Dial(m.ctx, m.pod, 80, true)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return near, m.far[len(m.far)-1]
}

func (m *machine) exec(c nodes.Command) (int32, error) {
	c.Container = "main"
	return m.nodes.Exec(m.ctx, m.pod, c)
}

// streams are the commands of the tests.
func streams() map[string]func(context.Context, agent.ExecRequest) int32 {
	return map[string]func(context.Context, agent.ExecRequest) int32{
		"cat": func(_ context.Context, req agent.ExecRequest) int32 {
			if _, err := io.Copy(req.Stdout, req.Stdin); err != nil {
				return 1
			}
			return 0
		},
		"fail": func(_ context.Context, req agent.ExecRequest) int32 {
			fmt.Fprint(req.Stdout, "out")
			fmt.Fprint(req.Stderr, "err")
			return 42
		},
		"wait": func(ctx context.Context, _ agent.ExecRequest) int32 {
			<-ctx.Done()
			return 137
		},
		"size": func(ctx context.Context, req agent.ExecRequest) int32 {
			for range 2 {
				size := <-req.Sizes
				fmt.Fprintf(req.Stdout, "%dx%d ", size.Width, size.Height)
			}
			return 0
		},
	}
}

func TestExec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, streams())
		var out, errs bytes.Buffer
		code, err := m.exec(nodes.Command{Args: []string{"fail"}, Stdout: &out, Stderr: &errs})
		if err != nil || code != 42 || out.String() != "out" || errs.String() != "err" {
			t.Fatal(code, err, out.String(), errs.String())
		}
		big := strings.Repeat("0123456789abcdef", 1<<17) // much more than a window
		out.Reset()
		code, err = m.exec(nodes.Command{Args: []string{"cat"}, Stdin: strings.NewReader(big), Stdout: &out})
		if err != nil || code != 0 || out.String() != big {
			t.Fatalf("%d bytes of %d, %d, %v", out.Len(), len(big), code, err)
		}
		out.Reset()
		sizes := make(chan *session.Size)
		go func() {
			sizes <- &session.Size{Width: 80, Height: 24}
			synctest.Wait()
			sizes <- &session.Size{Width: 132, Height: 50}
		}()
		code, err = m.exec(nodes.Command{Args: []string{"size"}, Stdout: &out, TTY: true, Sizes: sizes})
		if err != nil || code != 0 || out.String() != "80x24 132x50 " {
			t.Fatal(code, err, out.String())
		}
		if _, err := m.exec(nodes.Command{Args: []string{"absent"}}); err == nil || !strings.Contains(err.Error(), "absent: no such program") {
			t.Fatal(err)
		}
		if _, err := m.nodes.Exec(m.ctx, m.pod, nodes.Command{Container: "other", Args: []string{"cat"}}); err == nil || !strings.Contains(err.Error(), `container "other" of pod default/p1 does not run`) {
			t.Fatal(err)
		}
		elsewhere := m.pod.DeepCopy()
		elsewhere.Spec.NodeName = "n7"
		if _, err := m.nodes.Exec(m.ctx, elsewhere, nodes.Command{Container: "main", Args: []string{"cat"}}); err == nil || !strings.Contains(err.Error(), "node n7 is not connected") {
			t.Fatal(err)
		}
	})
}

// A client that leaves ends its command, also one that does not read what it is sent;
// the container runs on.
func TestExecEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, streams())
		for _, stdin := range []io.Reader{nil, endless{}} {
			ctx, cancel := context.WithCancel(m.ctx)
			done := make(chan error, 1)
			go func() {
				_, err := m.nodes.Exec(ctx, m.pod, nodes.Command{Container: "main", Args: []string{"wait"}, Stdin: stdin})
				done <- err
			}()
			synctest.Wait()
			if n := m.commands.Load(); n != 1 {
				t.Fatalf("%d commands run", n)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := m.commands.Load(); n != 0 {
				t.Fatalf("%d commands run after the client has left", n)
			}
		}
		if p := live(m.cluster, m.pod); p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Fatalf("the pod is %+v", p.Status)
		}
	})
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestExecAndAgentThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, streams())
		done := make(chan error, 1)
		go func() {
			_, err := m.exec(nodes.Command{Args: []string{"wait"}, Stdin: endless{}})
			done <- err
		}()
		synctest.Wait()
		m.node.stop()
		if err := <-done; err == nil {
			t.Fatal("the command ended well")
		}
	})
}

func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, nil)
		near, far := m.dial()
		if got := m.asked[0]; got.Port != 80 || !got.Inside || got.UID != m.pod.UID {
			t.Fatalf("asked %+v", got)
		}
		// Both ways, more than a window, neither waiting for the other.
		big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		var wg sync.WaitGroup
		for _, c := range []net.Conn{near, far} {
			wg.Go(func() {
				if _, err := c.Write(big); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				got := make([]byte, len(big))
				if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, big) {
					t.Error("not what was sent", err)
				}
			})
		}
		wg.Wait()
		// The pod hangs up.
		if err := far.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := near.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(n, err)
		}
		if err := near.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Read(make([]byte, 1)); err == nil {
			t.Fatal("read from a closed connection")
		}
		// The client hangs up.
		near, far = m.dial()
		near.Close()
		if n, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(n, err)
		}
		if _, err := m.nodes.Dial(m.ctx, m.pod, 81, false); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Fatal(err)
		}
	})
}

// What nobody reads waits with who writes it, and does not hold up the other way.
func TestDialBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, nil)
		near, far := m.dial()
		var sent atomic.Int64
		pour := func(c net.Conn) {
			for {
				n, err := c.Write(make([]byte, 1000))
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}
		go pour(far)
		synctest.Wait()
		if n := sent.Load(); n < session.Window || n > session.Window+64<<10 {
			t.Fatalf("a pod whose client does not read has sent %d bytes", n)
		}
		go func() {
			if _, err := near.Write([]byte("still here")); err != nil {
				t.Error(err)
			}
		}()
		word := make([]byte, 10)
		if _, err := io.ReadFull(far, word); err != nil || string(word) != "still here" {
			t.Fatal(string(word), err)
		}
		sent.Store(0)
		go pour(near)
		synctest.Wait()
		if n := sent.Load(); n > session.Window+64<<10 {
			t.Fatalf("a client whose pod does not read has sent %d bytes", n)
		}
		// A client that leaves is noticed by a pod that neither reads nor is read.
		near.Close()
		synctest.Wait()
		if _, err := io.Copy(io.Discard, far); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDialDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, nil)
		near, far := m.dial()
		began := time.Now()
		near.SetReadDeadline(began.Add(time.Minute))
		near.SetReadDeadline(began.Add(time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Fatal(err, time.Since(began))
		}
		near.SetDeadline(time.Time{})
		go far.Write([]byte("x"))
		if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		near.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := near.Write(make([]byte, 2*session.Window)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		near.Close()
	})
}

func TestDialAndAgentThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, nil)
		near, far := m.dial()
		m.node.stop()
		if _, err := near.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Fatalf("a connection whose agent died: %v", err)
		}
		if _, err := near.Write(make([]byte, 1)); err == nil {
			t.Fatal("a connection whose agent died can be written")
		}
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reachable(t, nil)
		var all []net.Conn
		for range session.MaxStreams {
			near, _ := m.dial()
			all = append(all, near)
		}
		if _, err := m.nodes.Dial(m.ctx, m.pod, 80, true); err == nil || !strings.Contains(err.Error(), "too many streams") {
			t.Fatal(err)
		}
		for _, c := range all {
			c.Close()
		}
		synctest.Wait()
		near, _ := m.dial()
		near.Close()
	})
}
