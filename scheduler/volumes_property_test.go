package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/binding"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	"headway.dev/headway/store/storetest"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// TestClaimsAreNeverBoundTwice lets the scheduler work on a cache that lags, over a
// backend that loses writes and answers, while people make and delete claims, volumes
// and pods. A claim has one volume and a volume one claim, both or neither says so, a pod
// is where the volumes of its claims are, and one that is to be alone is.
func TestClaimsAreNeverBoundTwice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kv := memory.New()
		w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		w.st = truth(t, kv)
		batch := rapid.SampledFrom([]int{1, 2, 50}).Draw(rt, "batch")
		w.loop = newLoop(Config{Store: w.st, Fence: func() store.Fence { return store.Fence{} }, Now: func() time.Time { return w.now }}, batch)
		w.st.OnEvents(w.loop.Handle)
		fault := "" // operation that fails while the loop works
		kv.Fail(func(op string) error {
			if op == fault {
				return fmt.Errorf("cut: %w", store.ErrUnavailable)
			}
			return nil
		})
		user := func(verb store.Verb, obj api.Object) {
			_, err := w.st.Commit(context.Background(), store.Txn{Ops: []store.Op{{Verb: verb, Object: obj}}})
			if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrExists) {
				rt.Fatal(err)
			}
		}
		made := 0
		name := func(prefix string) string { made++; return fmt.Sprintf("%s%d", prefix, made) }
		one := func(label string, words ...string) string { return rapid.SampledFrom(words).Draw(rt, label) }
		placed := map[types.UID]bool{}
		check := func() { checkVolumes(rt, truth(t, kv), placed) }
		addNode := func() {
			n := name("n")
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n, UID: types.UID(n)}}
			user(store.Create, aNode(t, node, []string{"pods=3", one("with", "volumes", "volumes", "notready", "cpu=4")}))
			user(store.Create, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: n}})
		}
		work := func(*rapid.T) {
			fault = one("fault", "", "", "commit", "committed")
			for range rapid.IntRange(1, 4).Draw(rt, "steps") {
				w.loop.Step(context.Background())
				check()
				fault = ""
			}
		}
		user(store.Create, aClass(t, "local", nil))
		user(store.Create, aClass(t, "disks", []string{"provisioner=kubernetes.io/no-provisioner"}))
		addNode()
		addNode()
		rt.Repeat(map[string]func(*rapid.T){
			"node": func(*rapid.T) {
				if len(w.st.List(api.Nodes(), "")) < 4 {
					addNode()
				}
			},
			"claim": func(*rapid.T) {
				c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: one("claim", "a", "b", "c")}, Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(one("mode", "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"))}}}
				class := one("class", "local", "disks")
				c.Spec.StorageClassName, c.UID = &class, types.UID(name("claim-"))
				user(store.Create, c)
			},
			"volume": func(*rapid.T) {
				v := aVolume(t, name("v"), []string{"1Gi", "class=" + one("class", "local", "disks"), "node=n" + one("node", "1", "2", "3")})
				user(store.Create, v)
			},
			"pods": func(*rapid.T) {
				for range rapid.IntRange(1, 3).Draw(rt, "pods") {
					user(store.Create, aPod(t, name("p"), w.now, []string{"claim=" + one("first", "a", "b", "c"), "claim=" + one("second", "a", "b", "c"), "priority=" + one("priority", "0", "0", "5")}))
				}
			},
			"delete": func(*rapid.T) {
				if all := w.pods(); len(all) > 0 {
					user(store.Delete, rapid.SampledFrom(all).Draw(rt, "pod"))
				}
			},
			"stop claim": func(*rapid.T) {
				if all := w.st.List(api.PersistentVolumeClaims(), ""); len(all) > 0 {
					c := rapid.SampledFrom(all).Draw(rt, "claim").DeepCopyObject().(*corev1.PersistentVolumeClaim)
					c.DeletionTimestamp = &metav1.Time{Time: w.now}
					user(store.Update, c)
				}
			},
			"drop claim": func(*rapid.T) {
				for _, obj := range w.st.List(api.PersistentVolumeClaims(), "") {
					if obj.GetDeletionTimestamp() != nil {
						user(store.Delete, obj)
					}
				}
			},
			"see": func(*rapid.T) {
				for range rapid.IntRange(1, 12).Draw(rt, "revisions") {
					if _, err := w.st.Step(context.Background()); err != nil {
						rt.Fatal(err)
					}
				}
			},
			"see all":   func(*rapid.T) { storetest.Settle(t, w.st) },
			"work":      work,
			"work more": work,
			"wait": func(*rapid.T) {
				if next := w.loop.Next(); !next.IsZero() {
					w.now = next
				}
			},
			"": func(*rapid.T) { check() },
		})
		for range 1_000 {
			storetest.Settle(t, w.st)
			if w.loop.Step(context.Background()) {
				check()
				continue
			}
			next := w.loop.Next()
			if next.IsZero() {
				break
			}
			w.now = next
		}
		nobodyForgotten(rt, truth(t, kv))
	})
}

// checkVolumes looks at what is bound to what, and at the pods placed since the last
// call.
func checkVolumes(t *rapid.T, s *store.Store, placed map[types.UID]bool) {
	volumes := map[string]*corev1.PersistentVolume{}
	owner := map[types.UID]string{}
	for _, obj := range s.List(api.PersistentVolumes(), "") {
		v := obj.(*corev1.PersistentVolume)
		volumes[v.Name] = v
		if ref := v.Spec.ClaimRef; ref != nil {
			if other := owner[ref.UID]; other != "" {
				t.Fatalf("claim %s has volumes %s and %s", ref.Name, other, v.Name)
			}
			owner[ref.UID] = v.Name
		}
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for _, obj := range s.List(api.PersistentVolumeClaims(), "") {
		claim := obj.(*corev1.PersistentVolumeClaim)
		claims[claim.Name] = claim
		if owner[claim.UID] != claim.Spec.VolumeName {
			t.Fatalf("claim %s says %q, and of the volumes %q says that it has it", claim.Name, claim.Spec.VolumeName, owner[claim.UID])
		}
	}
	users := map[store.Key][]string{}
	for _, obj := range s.List(api.Pods(), "") {
		if pod := obj.(*corev1.Pod); pod.Spec.NodeName != "" {
			for _, key := range claimsOf(pod) {
				users[key] = append(users[key], pod.Name)
			}
		}
	}
	for _, obj := range s.List(api.Pods(), "") {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName == "" || placed[pod.UID] {
			continue
		}
		placed[pod.UID] = true
		node := s.Get(store.Key{GroupResource: api.Nodes(), Name: pod.Spec.NodeName}).(*corev1.Node)
		for _, key := range claimsOf(pod) {
			claim := claims[key.Name]
			if claim == nil || !binding.Complete(claim) || !readVolume(volumes[claim.Spec.VolumeName]).reaches(node) {
				t.Fatalf("pod %s is on %s, and its claim %s is not: %+v", pod.Name, node.Name, key.Name, claim)
			}
			if slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) && len(users[key]) > 1 {
				t.Fatalf("pods %v have claim %s, which one may have", users[key], key.Name)
			}
		}
	}
}
