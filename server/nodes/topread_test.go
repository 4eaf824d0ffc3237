package nodes

import (
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/session"
)

// Whatever an agent answers, it speaks of pods of its own node and of containers that
// they have, and no figure is below zero.
func FuzzReadTop(f *testing.F) {
	for _, m := range []*session.Figures{
		{},
		{TimeNanos: 1, WindowNanos: 1e9, Node: &session.ContainerFigures{Cpu: 1, Memory: -1}},
		{Pods: []*session.PodFigures{{Uid: "mine", WindowNanos: 1e9, Containers: []*session.ContainerFigures{{Name: "main", Cpu: 5, Memory: -1}, {Name: "none", Cpu: 5}, {Name: "main", Cpu: -5}}}, {Uid: "other"}}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(make([]byte, maxTop+1))
	pods := []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{UID: "mine"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		top, err := readTop(raw, "n1", pods)
		if err != nil {
			return
		}
		if n := top.Node; n != nil && (n.CPU < 0 || n.Memory < 0) {
			t.Errorf("the node uses %+v", n)
		}
		for uid, p := range top.Pods {
			if uid != "mine" || len(p.Containers) != 1 || p.Window <= 0 {
				t.Errorf("%s: %+v", uid, p)
			}
			if a, ok := p.Containers["main"]; !ok || a.CPU < 0 || a.Memory < 0 {
				t.Errorf("%+v", p)
			}
		}
	})
}
