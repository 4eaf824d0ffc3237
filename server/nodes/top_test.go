package nodes_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
	"headway.dev/headway/server/nodes"
)

// Whoever asks what a node uses within ten seconds gets one answer; a node that is not
// there is an error, and is asked again.
func TestFiguresOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		machine := fake.New(fake.Config{Programs: func(agent.ContainerSpec) fake.Program { return fake.Program{Cores: 0.25, Memory: 1 << 20} }})
		if _, err := c.nodes.Figures(c.ctx, "n1"); err == nil {
			t.Error("a node that is not there has figures")
		}
		c.node("n1", t.TempDir(), machine)
		p := pod("p1", "n1")
		c.create(p)
		synctest.Wait()
		answers := make(chan nodes.Top, 3)
		for range cap(answers) {
			go func() {
				top, err := c.nodes.Figures(c.ctx, "n1")
				if err != nil {
					t.Error(err)
				}
				answers <- top
			}()
		}
		for range cap(answers) {
			top := <-answers
			got := top.Pods[types.UID(p.UID)]
			if a := got.Containers[p.Spec.Containers[0].Name]; len(top.Pods) != 1 || len(got.Containers) != len(p.Spec.Containers) || a.CPU < 2.4e8 || a.CPU > 2.6e8 || a.Memory != 1<<20 || got.Window <= 0 {
				t.Errorf("%+v", top)
			}
		}
		if n := machine.Calls("Usage"); n != 2 {
			t.Errorf("three questions at one time made %d readings", n)
		}
		time.Sleep(9 * time.Second)
		if _, err := c.nodes.Figures(c.ctx, "n1"); err != nil || machine.Calls("Usage") != 2 {
			t.Errorf("%v, %d readings", err, machine.Calls("Usage"))
		}
		time.Sleep(2 * time.Second)
		if _, err := c.nodes.Figures(c.ctx, "n1"); err != nil || machine.Calls("Usage") != 3 {
			t.Errorf("%v, %d readings", err, machine.Calls("Usage"))
		}
	})
}

// A session is told its node's labels when it begins, before any pod, and again when
// somebody changes them.
func TestLabelsOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		s := c.session("n1")
		s.settle()
		change(c, facts("n1"), func(n *corev1.Node) { n.Labels["disk"] = "fast" })
		s.settle()
		change(c, facts("n1"), func(n *corev1.Node) { n.Spec.Unschedulable = true })
		s.settle()
		if len(s.labels) != 2 || s.labels[0]["disk"] != "" || s.labels[0]["kubernetes.io/hostname"] != "n1" || s.labels[1]["disk"] != "fast" {
			t.Errorf("%v", s.labels)
		}
	})
}
