package nodes_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// node runs an agent on a fake machine.
type node struct {
	agent *agent.Agent
	stop  func()
}

func (c *cluster) node(name, dir string, engine agent.Runtime) *node {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	a, err := agent.New(agent.Config{
		Runtime: engine, Dir: dir, Log: testLog(c.t),
		Dial: func(context.Context) (agent.Conn, error) { return c.dial(name), nil },
		Node: func() (*corev1.Node, error) { return facts(name), nil },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	n := &node{agent: a}
	n.stop = func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
		done <- nil
	}
	c.t.Cleanup(n.stop)
	return n
}

func TestPodRunsAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Output: "one\ntwo\n"} }})
		c.node("n1", t.TempDir(), machine)
		synctest.Wait()
		if n := live(c, facts("n1")); n == nil || n.Status.Conditions[0].Status != corev1.ConditionTrue {
			t.Fatalf("node is %+v", n)
		}
		p := pod("p1", "n1")
		c.create(p)
		synctest.Wait()
		got := live(c, p)
		if got.Status.Phase != corev1.PodRunning || got.Status.PodIP == "" || got.Status.ContainerStatuses[0].State.Running == nil {
			t.Fatalf("status is %+v", got.Status)
		}
		r, err := c.nodes.Logs(c.ctx, got, &corev1.PodLogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || string(text) != "one\ntwo\n" {
			t.Fatal(string(text), err)
		}
		now, grace := metav1.Now(), int64(30)
		change(c, p, func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace })
		synctest.Wait()
		if live(c, p) != nil {
			t.Fatal("the pod stays")
		}
		if left, err := machine.List(c.ctx); err != nil || len(left) != 0 {
			t.Fatal(left, err)
		}
		if n := len(c.store.List(kindEvents(), "default")); n < 4 {
			t.Fatalf("%d events", n)
		}
	})
}

// readers counts the logs that are being read.
type readers struct {
	agent.Runtime
	open atomic.Int32
}

func (r *readers) Logs(ctx context.Context, req agent.LogRequest, w io.Writer) error {
	r.open.Add(1)
	defer r.open.Add(-1)
	return r.Runtime.Logs(ctx, req, w)
}

func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		big := strings.Repeat(strings.Repeat("x", 99)+"\n", 20000) // more than every buffer on the way
		machine := &readers{Runtime: fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Output: big} }})}
		c.node("n1", t.TempDir(), machine)
		p := pod("p1", "n1")
		c.create(p)
		synctest.Wait()
		p = live(c, p)

		r, err := c.nodes.Logs(c.ctx, p, &corev1.PodLogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the agent waits for the reader
		text, err := io.ReadAll(r)
		if err != nil || string(text) != big {
			t.Fatalf("%d bytes of %d: %v", len(text), len(big), err)
		}
		tail := int64(2)
		if r, err = c.nodes.Logs(c.ctx, p, &corev1.PodLogOptions{TailLines: &tail}); err != nil {
			t.Fatal(err)
		}
		if text, err = io.ReadAll(r); err != nil || len(text) != 200 {
			t.Fatal(len(text), err)
		}
		// A reader that leaves ends the agent's work, in the middle of a log and when
		// the log is silent.
		for _, o := range []*corev1.PodLogOptions{{Follow: true}, {Follow: true, TailLines: &tail}} {
			if r, err = c.nodes.Logs(c.ctx, p, o); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r, make([]byte, 200)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := machine.open.Load(); n != 1 {
				t.Fatalf("%d logs are read on the node", n)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := machine.open.Load(); n != 0 {
				t.Fatalf("%d logs are read on the node after the reader has left", n)
			}
		}
		// Follow ends when the reader's context does.
		ctx, cancel := context.WithCancel(c.ctx)
		if r, err = c.nodes.Logs(ctx, p, &corev1.PodLogOptions{Follow: true, TailLines: &tail}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := io.ReadAll(r); err == nil {
			t.Fatal("the log goes on after its reader is gone")
		}
		synctest.Wait()
		if n := machine.open.Load(); n != 0 {
			t.Fatalf("%d logs are read on the node after the reader's context has ended", n)
		}
		elsewhere := p.DeepCopy()
		elsewhere.Spec.NodeName = "n7"
		if _, err := c.nodes.Logs(c.ctx, elsewhere, &corev1.PodLogOptions{}); err == nil || !strings.Contains(err.Error(), "node n7 is not connected") {
			t.Fatal(err)
		}
	})
}

// The same over the HTTP/2 server that production has.
func TestOverHTTP(t *testing.T) {
	c := open(t)
	c.serveHTTP()
	machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program {
		return fake.Program{Output: strings.Repeat("0123456789", 100000)}
	}})
	c.node("n1", t.TempDir(), machine)
	p := pod("p1", "n1")
	c.create(p)
	waitFor(t, func() bool { p = live(c, p); return p.Status.Phase == corev1.PodRunning })
	r, err := c.nodes.Logs(c.ctx, p, &corev1.PodLogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || len(text) != 1000000 {
		t.Fatal(len(text), err)
	}
}

// Fifty pods at once: what the agent, the session and the store add to what the
// engine needs. The engine takes no time here.
func BenchmarkFiftyPods(b *testing.B) {
	for _, http := range []bool{false, true} {
		b.Run(fmt.Sprintf("http=%v", http), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c := open(b)
				if http {
					c.serveHTTP()
				}
				n := c.node("n1", b.TempDir(), fake.New(fake.Config{}))
				var pods []*corev1.Pod
				for i := range 50 {
					pods = append(pods, pod(fmt.Sprintf("p%02d", i), "n1"))
				}
				waitFor(b, func() bool { return live(c, facts("n1")) != nil })
				b.StartTimer()
				c.create(objects(pods)...)
				waitFor(b, func() bool {
					for _, p := range c.store.OnNode("n1") {
						if p.Status.Phase != corev1.PodRunning {
							return false
						}
					}
					return len(c.store.OnNode("n1")) == 50
				})
				b.StopTimer()
				n.stop()
				b.StartTimer()
			}
		})
	}
}

// One pod, from its object to its status in the store.
func BenchmarkOnePod(b *testing.B) {
	for _, http := range []bool{false, true} {
		b.Run(fmt.Sprintf("http=%v", http), func(b *testing.B) {
			c := open(b)
			if http {
				c.serveHTTP()
			}
			c.node("n1", b.TempDir(), fake.New(fake.Config{}))
			waitFor(b, func() bool { return live(c, facts("n1")) != nil })
			w, err := c.store.Watch(c.ctx, api.Pods(), "", c.store.Revision())
			if err != nil {
				b.Fatal(err)
			}
			i := 0
			for b.Loop() {
				i++
				p := pod(fmt.Sprintf("p%05d", i), "n1")
				c.create(p)
				for running := false; !running; {
					for _, e := range <-w.Events() {
						got, ok := e.Object.(*corev1.Pod)
						running = running || ok && got.Name == p.Name && got.Status.Phase == corev1.PodRunning
					}
				}
				b.StopTimer()
				now := metav1.Now()
				change(c, p, func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, new(int64) })
				waitFor(b, func() bool { return live(c, p) == nil })
				b.StartTimer()
			}
		})
	}
}

func waitFor(b testing.TB, ok func() bool) {
	b.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			b.Fatal("it does not happen")
		}
		<-tick.C
	}
}
