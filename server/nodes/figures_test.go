package nodes_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/server/nodes"
)

func labelled(name, node, app string) *corev1.Pod {
	p := pod(name, node)
	p.Labels = map[string]string{"app": app}
	return p
}

func scaledApp(name string) (*appsv1.Deployment, *autoscalingv2.HorizontalPodAutoscaler) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}}},
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 9,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}}}
}

func measured(at time.Time, pods ...*corev1.Pod) *session.Up {
	m := &session.Figures{TimeNanos: at.UnixNano()}
	for _, p := range pods {
		m.Pods = append(m.Pods, &session.PodFigures{Uid: string(p.UID), WindowNanos: int64(15 * time.Second), Containers: []*session.ContainerFigures{
			{Name: "main", Cpu: 250_000_000, Memory: 7 << 20}, {Name: "main", Cpu: 1}, {Name: "nobody's", Cpu: 1}}})
	}
	return &session.Up{Message: &session.Up_Figures{Figures: m}}
}

// asked are the pods of the newest request to measure, nil when there was none since
// the last look.
func (s *client) asked() []string {
	s.settle()
	for _, m := range slices.Backward(s.got) {
		if ask := m.GetMeasure(); ask != nil {
			s.got = nil
			return append([]string{}, ask.Uids...)
		}
	}
	return nil
}

func (c *cluster) figures(node string) *api.NodeFigures {
	c.t.Helper()
	return live(c, &api.NodeFigures{ObjectMeta: metav1.ObjectMeta{Name: node}})
}

// Agents measure what an autoscaler targets, and nothing else is asked or written.
func TestFiguresOfWhatIsAutoscaled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		web, other, elsewhere := labelled("web-1", "n1", "web"), labelled("other-1", "n1", "other"), labelled("web-2", "n2", "web")
		c.create(web, other, elsewhere)
		d, a := scaledApp("web")
		c.create(d)
		s := c.session("n1")
		if got := s.asked(); got != nil {
			t.Fatalf("nobody asks, and %v are measured", got)
		}
		s.up(measured(time.Now(), web))
		s.settle()
		if f := c.figures("n1"); f != nil {
			t.Fatalf("unasked figures are kept: %+v", f)
		}
		time.Sleep(api.FiguresPeriod)
		c.create(a)
		if got := s.asked(); !slices.Equal(got, []string{string(web.UID)}) {
			t.Fatalf("asked for %v, want the pod of the node that the autoscaler targets", got)
		}
		at := time.Now().Add(-time.Second)
		s.up(measured(at, other, elsewhere, web))
		s.settle()
		f := c.figures("n1")
		if f == nil || len(f.Pods) != 1 || f.Pods[0].UID != web.UID || f.Pods[0].Millis != 15000 || !f.Time.Time.Equal(at.Truncate(time.Microsecond)) || !f.Received.Time.Equal(time.Now().Truncate(time.Microsecond)) {
			t.Fatalf("figures %+v", f)
		}
		if got := f.Pods[0].Containers; len(got) != 1 || got[0] != (api.ContainerFigures{Name: "main", CPU: 250_000_000, Memory: 7 << 20}) {
			t.Errorf("containers %+v", got)
		}
		for range 3 { // more often than asked for
			s.up(measured(time.Now(), web))
			s.settle()
		}
		if again := c.figures("n1"); again.ResourceVersion != f.ResourceVersion {
			t.Error("an agent that tells all the time is written all the time")
		}
		renew := func() { s.up(&session.Up{Message: &session.Up_Renew{Renew: &session.Renew{}}}) }
		time.Sleep(api.FiguresPeriod)
		renew()
		s.up(measured(time.Now(), web))
		s.settle()
		if again := c.figures("n1"); again.ResourceVersion == f.ResourceVersion {
			t.Error("the next figures are not written")
		}
		more := labelled("web-3", "n1", "web")
		c.create(more)
		if got := s.asked(); len(got) != 2 {
			t.Errorf("asked for %v after another pod came", got)
		}
		change(c, web, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		c.remove(more)
		if got := s.asked(); got == nil || len(got) != 0 {
			t.Errorf("asked for %v after both had ended", got)
		}
		if f := c.figures("n1"); f != nil {
			t.Errorf("left behind: %+v", f)
		}
		c.create(labelled("web-4", "n1", "web"))
		if got := s.asked(); len(got) != 1 {
			t.Errorf("asked for %v", got)
		}
		change(c, a, func(a *autoscalingv2.HorizontalPodAutoscaler) { a.Status.CurrentReplicas = 3 })
		if got := s.asked(); got != nil {
			t.Errorf("asked again for %v when an autoscaler's status changed", got)
		}
		c.remove(a)
		if got := s.asked(); got == nil || len(got) != 0 {
			t.Errorf("asked for %v after the autoscaler went", got)
		}
	})
}

// What a node told goes with the node, and a session that was replaced tells nothing
// more.
func TestFiguresGoWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		web := labelled("web-1", "n1", "web")
		d, a := scaledApp("web")
		c.create(web, d, a)
		another := nodes.New(nodes.Config{Store: c.store, Authority: c.ca}) // server, which has not heard of the newer session
		old, err := another.Attend(context.Background(), "n1", hello(t, session.Version, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := old.Send(); err != nil {
			t.Fatal(err)
		}
		s := c.session("n1")
		if got := s.asked(); len(got) != 1 {
			t.Fatalf("asked for %v", got)
		}
		if err := old.Receive(measured(time.Now(), web)); err != nil {
			t.Fatal(err)
		}
		if _, err := old.Write(); err == nil {
			t.Error("a replaced session has written")
		}
		if f := c.figures("n1"); f != nil {
			t.Errorf("figures of a replaced session: %+v", f)
		}
		s.up(measured(time.Now(), web))
		s.settle()
		if c.figures("n1") == nil {
			t.Fatal("no figures")
		}
		s.close()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if f := c.figures("n1"); f != nil {
			t.Errorf("the node is lost, and its figures are there: %+v", f)
		}
	})
}

// A record is bounded, whatever the agent says.
func TestFiguresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		d, a := scaledApp("web")
		c.create(d, a)
		var pods []*corev1.Pod
		for i := range 60 {
			p := labelled("web-"+string(rune('a'+i%26))+strings.Repeat("x", i), "n1", "web")
			p.Spec.Containers = nil
			for j := range 200 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: strings.Repeat("c", 1+j%60) + string(rune('a'+j/60))})
			}
			c.create(p)
			pods = append(pods, p)
		}
		s := c.session("n1")
		if got := s.asked(); len(got) != len(pods) {
			t.Fatalf("asked for %d", len(got))
		}
		m := &session.Figures{TimeNanos: time.Now().UnixNano()}
		for _, p := range pods {
			f := &session.PodFigures{Uid: string(p.UID), WindowNanos: int64(time.Second)}
			for _, k := range p.Spec.Containers {
				f.Containers = append(f.Containers, &session.ContainerFigures{Name: k.Name, Cpu: 1 << 40, Memory: 1 << 50})
			}
			m.Pods = append(m.Pods, f, f)
		}
		s.up(&session.Up{Message: &session.Up_Figures{Figures: m}})
		s.settle()
		f := c.figures("n1")
		if f == nil || len(f.Pods) == 0 || len(f.Pods) == len(pods) {
			t.Fatalf("figures %+v", f)
		}
		size := 0
		for i := range f.Pods {
			size += f.Pods[i].Size()
		}
		if size > api.MaxFigures {
			t.Errorf("%d bytes", size)
		}
	})
}

// A target that is made again with the pods that it had is measured again, and what
// one session left is taken away by the next when nobody asks any more.
func TestFiguresOfATargetThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		web := labelled("web-1", "n1", "web")
		d, a := scaledApp("web")
		c.create(web, d, a)
		s := c.session("n1")
		if got := s.asked(); len(got) != 1 {
			t.Fatalf("asked for %v", got)
		}
		c.remove(d)
		if got := s.asked(); got == nil || len(got) != 0 {
			t.Fatalf("asked for %v without the target", got)
		}
		c.create(d)
		if got := s.asked(); len(got) != 1 {
			t.Fatalf("asked for %v when the target is there again", got)
		}
		s.up(measured(time.Now(), web))
		s.settle()
		if c.figures("n1") == nil {
			t.Fatal("no figures")
		}
		s.close()
		c.remove(a)
		again := c.session("n1")
		again.settle()
		if f := c.figures("n1"); f != nil {
			t.Errorf("left behind by a session before: %+v", f)
		}
	})
}
