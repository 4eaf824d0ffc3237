package nodes_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
)

// claimed is a pod with claims.
func claimed(name, node string, claims ...string) *corev1.Pod {
	p := pod(name, node)
	for _, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c},
		}})
	}
	return p
}

// pair is a claim and the volume it is bound to, of the local class on a node.
func pair(name, node string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	claim.Spec.VolumeName = "pv-" + name
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{
		Name: "pv-" + name, UID: types.UID("uid-pv-" + name), Finalizers: []string{api.LocalVolumeFinalizer},
		Annotations: map[string]string{api.ProvisionedByAnnotation: api.LocalProvisioner},
	}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID}
	pv.Spec.NodeAffinity = api.LocalVolumeAffinity(node)
	return claim, pv
}

// static makes a volume one that people have made.
func static(pv *corev1.PersistentVolume, key, value string) *corev1.PersistentVolume {
	pv.Annotations, pv.Finalizers = nil, nil
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}},
	}}}}
	return pv
}

func deleting(pv *corev1.PersistentVolume) {
	pv.DeletionTimestamp = &metav1.Time{Time: time.Now()}
}

func (s *client) gone(name, uid string) {
	s.up(&session.Up{Message: &session.Up_VolumeGone{VolumeGone: &session.VolumeGone{Name: name, Uid: uid}}})
}

// A node is sent the claims of its pods and their volumes, and the volumes whose data
// it has; nothing else.
func TestANodeSeesItsVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		a, pa := pair("a", "n1")
		b, pb := pair("b", "n2")
		d, pd := pair("d", "n1") // of no pod
		c.create(a, pa, b, pb, d, pd, claimed("p1", "n1", "a"), claimed("p2", "n2", "b"))
		s := c.session("n1")
		expect(t, s.settle(), "welcome", "set volume pv-a", "set volume pv-d", "set claim a", "set pod p1", "synced", "mark")

		// A claim that is bound later, by both.
		e, pe := pair("e", "n1")
		static(pe, "kubernetes.io/hostname", "n1")
		ref, name := pe.Spec.ClaimRef, e.Spec.VolumeName
		pe.Spec.ClaimRef, e.Spec.VolumeName = nil, ""
		c.create(e, pe, claimed("p3", "n1", "e"))
		expect(t, s.settle(), "set claim e", "set pod p3")
		change(c, e, func(e *corev1.PersistentVolumeClaim) { e.Spec.VolumeName = name })
		expect(t, s.settle(), "set claim e")
		change(c, pe, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = ref })
		expect(t, s.settle(), "set volume pv-e")
		change(c, pe, func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"x": "y"} })
		expect(t, s.settle(), "set volume pv-e")
		c.remove(claimed("p3", "n1", "e"))
		expect(t, s.settle(), "unset pods p3", "unset persistentvolumeclaims e", "unset persistentvolumes pv-e")
		change(c, pe, func(pv *corev1.PersistentVolume) { pv.Labels = nil })
		expect(t, s.settle())

		// One of its own stays when its pod goes.
		c.remove(claimed("p1", "n1", "a"))
		expect(t, s.settle(), "unset pods p1", "unset persistentvolumeclaims a")
	})
}

// A claim that names a volume is not sent one that does not name it, nor one that the
// node cannot reach.
func TestANodeDoesNotSeeVolumesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		_, pb := pair("b", "n2")
		thief, _ := pair("thief", "n1")
		thief.Spec.VolumeName = pb.Name
		far, pfar := pair("far", "n1")
		static(pfar, "rack", "r2")
		c.create(pb, thief, far, pfar, claimed("p1", "n1", "thief", "far"))
		s := c.session("n1")
		expect(t, s.settle(), "welcome", "set claim far", "set claim thief", "set pod p1", "synced", "mark")
		// The claim of the same name that the volume was of is another one.
		change(c, pb, func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Name = "thief" })
		expect(t, s.settle())
		// With the label the node reaches it.
		change(c, facts("n1"), func(n *corev1.Node) { n.Labels["rack"] = "r2" })
		expect(t, s.settle(), "set volume pv-far")
	})
}

// The data of a volume that is deleted goes when no claim has it, and its object when
// the agent has said that it is gone.
func TestAVolumeGoesWithItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		a, pa := pair("a", "n1")
		p := claimed("p1", "n1", "a")
		c.create(a, pa, p)
		s := c.session("n1")
		s.settle()
		s.gone(pa.Name, string(pa.UID))
		expect(t, s.settle(), "refused end of volume pv-a: node n1 was not asked to remove it")
		change(c, pa, deleting)
		expect(t, s.settle(), "set volume pv-a")
		s.gone(pa.Name, string(pa.UID))
		expect(t, s.settle(), "refused end of volume pv-a: node n1 was not asked to remove it")
		c.remove(p)
		expect(t, s.settle(), "unset pods p1", "unset persistentvolumeclaims a")
		change(c, pa, func(pv *corev1.PersistentVolume) {
			pv.Finalizers = append(pv.Finalizers, "kubernetes.io/pv-protection")
		})
		c.remove(a)
		expect(t, s.settle(), "set volume pv-a")
		change(c, pa, func(pv *corev1.PersistentVolume) { pv.Finalizers = []string{"other", api.LocalVolumeFinalizer} })
		expect(t, s.settle(), "discard volume pv-a")

		// Another session is told of it, too.
		s = c.session("n1")
		expect(t, s.settle(), "welcome", "discard volume pv-a", "synced", "mark")
		s.gone(pa.Name, "another")
		expect(t, s.settle())
		s.gone("none", "none")
		expect(t, s.settle())
		if live(c, pa) == nil {
			t.Fatal("a volume of another uid went")
		}
		s.gone(pa.Name, string(pa.UID))
		expect(t, s.settle(), "set volume pv-a")
		if got := live(c, pa); got == nil || len(got.Finalizers) != 1 || got.Finalizers[0] != "other" {
			t.Fatalf("%+v", got)
		}
	})
}

// Without another finalizer the object goes at once; the claim's end alone is told of.
func TestAVolumeGoesWithItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		a, pa := pair("a", "n1")
		c.create(a, pa)
		s := c.session("n1")
		s.settle()
		change(c, pa, deleting)
		expect(t, s.settle(), "set volume pv-a")
		c.remove(a)
		expect(t, s.settle(), "discard volume pv-a")
		s.gone(pa.Name, string(pa.UID))
		expect(t, s.settle(), "unset persistentvolumes pv-a")
		if live(c, pa) != nil {
			t.Error("its object stays")
		}
	})
}

// An agent lets go of no volume of another node, and of none that Headway did not make.
func TestAnAgentLetsGoOfItsOwnVolumesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		_, other := pair("b", "n2")
		_, by := pair("c", "n1")
		by.Annotations[api.ProvisionedByAnnotation] = "somebody"
		_, labelled := pair("d", "n1")
		labelled.Spec.NodeAffinity = static(&corev1.PersistentVolume{}, "kubernetes.io/hostname", "n1").Spec.NodeAffinity
		volumes := []*corev1.PersistentVolume{other, by, labelled}
		for _, pv := range volumes {
			deleting(pv)
			c.create(pv)
		}
		s := c.session("n1")
		expect(t, s.settle(), "welcome", "synced", "mark")
		for _, pv := range volumes {
			s.gone(pv.Name, string(pv.UID))
			if got := s.settle(); len(got) != 1 || !strings.HasPrefix(got[0], "refused end of volume "+pv.Name) {
				t.Errorf("%s: %v", pv.Name, got)
			}
			if got := live(c, pv); len(got.Finalizers) != 1 {
				t.Errorf("%s lost its finalizer", pv.Name)
			}
		}
		s.gone(strings.Repeat("x", 1000), "uid")
		if got := s.settle(); len(got) != 1 || !strings.Contains(got[0], "too long") {
			t.Error(got)
		}
	})
}

// What a replaced session has in flight does not let a volume go (R4).
func TestD5_AReplacedSessionLetsNoVolumeGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		_, pa := pair("a", "n1")
		deleting(pa)
		c.create(pa)
		s, err := c.nodes.Attend(c.ctx, "n1", hello(t, session.Version, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		next, err := c.nodes.Attend(c.ctx, "n1", hello(t, session.Version, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		defer next.End(nil)
		if err := s.Receive(&session.Up{Message: &session.Up_VolumeGone{VolumeGone: &session.VolumeGone{Name: pa.Name, Uid: string(pa.UID)}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(); err == nil {
			t.Error("it wrote")
		}
		if live(c, pa) == nil {
			t.Error("the volume went")
		}
	})
}

// An agent of the version before is sent nothing that it does not know.
func TestAnOlderAgentSeesNoVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		a, pa := pair("a", "n1")
		c.create(a, pa, claimed("p1", "n1", "a"))
		s, err := c.nodes.Attend(context.Background(), "n1", hello(t, session.Version-1, facts("n1")))
		if err != nil {
			t.Fatal(err)
		}
		defer s.End(nil)
		sent := func() (out []string) {
			messages, err := s.Send()
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if len(m.GetSet().GetNode()) == 0 { // every session begins with it
					out = append(out, words(t, m))
				}
			}
			return out
		}
		expect(t, sent(), "welcome", "set pod p1", "synced", "mark")
		change(c, pa, deleting)
		c.remove(a)
		synctest.Wait()
		expect(t, sent())
	})
}

// The folder of a node's volumes is what its agent says, and gone when that says none.
func TestTheAgentSaysWhereVolumesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		n := facts("n1")
		n.Annotations = map[string]string{api.VolumesDirAnnotation: "/var/lib/headway/persistent", "headway.dev/other": "x", "team": "red"}
		c.sessionWith("n1", n).settle()
		change(c, n, func(n *corev1.Node) { n.Annotations["mine"] = "kept" })
		if got := live(c, n).Annotations; len(got) != 2 || got[api.VolumesDirAnnotation] != "/var/lib/headway/persistent" {
			t.Errorf("%v", got)
		}
		n.Annotations = nil
		c.sessionWith("n1", n).settle()
		if got := live(c, n).Annotations; len(got) != 1 || got["mine"] != "kept" {
			t.Errorf("%v", got)
		}
	})
}

// An agent tells of the volumes whose data it has, and of no others.
func TestEventsOfVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t)
		_, mine := pair("a", "n1")
		_, other := pair("b", "n2")
		c.create(mine, other)
		s := c.session("n1")
		s.settle()
		for _, pv := range []*corev1.PersistentVolume{mine, other} {
			raw, err := (&corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: pv.Name + ".1"},
				InvolvedObject: corev1.ObjectReference{Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID},
				Type:           corev1.EventTypeWarning, Reason: "VolumeFailedDelete",
			}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			s.up(&session.Up{Message: &session.Up_Event{Event: raw}})
		}
		s.settle()
		got := c.store.List(kindEvents(), "default")
		if len(got) != 1 || got[0].(*corev1.Event).InvolvedObject.Name != mine.Name {
			t.Errorf("%v", got)
		}
	})
}
