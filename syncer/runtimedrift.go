package syncer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
)

// RuntimeDrift is what runs on a node otherwise than declared. Nothing of it is in
// a manifest's field, so it is not in the live ref.
type RuntimeDrift struct {
	What      string    `json:"what"`                // killed, digest or foreign
	Object    string    `json:"object"`              // Pod default/web-1-x; of digest, the declared workload; of foreign, the node
	Container string    `json:"container,omitempty"` // its name
	Node      string    `json:"node,omitempty"`
	Message   string    `json:"message"`
	Time      time.Time `json:"time,omitzero"`
}

// The kinds of RuntimeDrift.
const (
	driftKilled  = "killed"  // a container ended by a signal that Headway did not send
	driftDigest  = "digest"  // pods of one workload run different images under one name
	driftForeign = "foreign" // containers that belong to no pod
)

// recently is how long something that has happened on a node is reported.
const recently = time.Hour

// maxRuntimeDrift bounds one report.
const maxRuntimeDrift = 200

// runtimeDrift reads what agents have reported about pods and nodes.
func (s *Syncer) runtimeDrift() []RuntimeDrift {
	out := []RuntimeDrift{}
	now := s.cfg.Now()
	images, owners := map[store.Key]imagesOf{}, s.declaredOwners()
	for _, obj := range s.cfg.Store.List(api.Pods(), "") {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			continue
		}
		top, declared := owners.find(pod)
		if !declared || pod.DeletionTimestamp != nil {
			continue
		}
		for _, c := range pod.Status.ContainerStatuses {
			if d, ok := killed(pod, c, now); ok {
				out = append(out, d)
			}
		}
		if images[top] == nil {
			images[top] = imagesOf{}
		}
		images[top].add(pod)
	}
	for _, top := range slices.SortedFunc(maps.Keys(images), compareKeys) {
		out = append(out, images[top].drift(top)...)
	}
	out = append(out, s.foreignContainers()...)
	slices.SortStableFunc(out, func(a, b RuntimeDrift) int {
		return cmp.Or(strings.Compare(a.What, b.What), b.Time.Compare(a.Time), strings.Compare(a.Object, b.Object), strings.Compare(a.Container, b.Container))
	})
	if len(out) > maxRuntimeDrift {
		out = out[:maxRuntimeDrift]
	}
	return out
}

// foreignContainers reads on which nodes agents have found some.
func (s *Syncer) foreignContainers() []RuntimeDrift {
	var out []RuntimeDrift
	for _, obj := range s.cfg.Store.List(api.Nodes(), "") {
		node, ok := obj.(*corev1.Node)
		if !ok {
			continue
		}
		for _, c := range node.Status.Conditions {
			if c.Type == api.ForeignContainers && c.Status == corev1.ConditionTrue {
				out = append(out, RuntimeDrift{What: driftForeign, Object: title("Node", "", node.Name), Node: node.Name, Message: c.Message, Time: c.LastTransitionTime.UTC()})
			}
		}
	}
	return out
}

// killed says whether a container of a pod was ended lately by a signal that was
// neither Headway's nor the kernel's for want of memory.
func killed(pod *corev1.Pod, c corev1.ContainerStatus, now time.Time) (RuntimeDrift, bool) {
	end := c.State.Terminated
	if end == nil {
		end = c.LastTerminationState.Terminated
	}
	const bySignal = 128
	if end == nil || end.ExitCode <= bySignal || end.ExitCode > bySignal+64 || end.Reason == "OOMKilled" || now.Sub(end.FinishedAt.Time) > recently {
		return RuntimeDrift{}, false
	}
	return RuntimeDrift{
		What: driftKilled, Object: title("Pod", pod.Namespace, pod.Name), Container: c.Name, Node: pod.Spec.NodeName, Time: end.FinishedAt.UTC(),
		Message: fmt.Sprintf("ended by signal %d, which Headway did not send: somebody on the node or the program itself; started %s", end.ExitCode-bySignal, plural(int(c.RestartCount), "time")+" again"),
	}, true
}

// imagesOf is what the containers of one workload run: by container and image name,
// by digest, the pods.
type imagesOf map[string]map[string][]string

func (i imagesOf) add(pod *corev1.Pod) {
	for _, c := range pod.Status.ContainerStatuses {
		_, digest, known := strings.Cut(c.ImageID, "@")
		if c.State.Running == nil || !known {
			continue
		}
		name := c.Name + " " + c.Image
		if i[name] == nil {
			i[name] = map[string][]string{}
		}
		i[name][digest] = append(i[name][digest], pod.Name)
	}
}

// drift are the images that mean more than one.
func (i imagesOf) drift(top store.Key) []RuntimeDrift {
	var out []RuntimeDrift
	for _, name := range slices.Sorted(maps.Keys(i)) {
		if digests := i[name]; len(digests) > 1 {
			container, image, _ := strings.Cut(name, " ")
			out = append(out, RuntimeDrift{What: driftDigest, Object: titleOf(top), Container: container, Message: digestText(image, digests)})
		}
	}
	return out
}

// declaredOwners finds the declared object that a pod was made from, or the pod itself.
// What the pods of one controller were made from is looked up once.
type declaredOwners struct {
	s  *Syncer
	of map[store.Key]declaredOwner // by controller
}

type declaredOwner struct {
	key store.Key
	ok  bool
}

func (s *Syncer) declaredOwners() declaredOwners {
	return declaredOwners{s: s, of: map[store.Key]declaredOwner{}}
}

func (d declaredOwners) find(pod *corev1.Pod) (store.Key, bool) {
	if d.s.owns(pod) {
		return store.KeyOf(pod), true
	}
	controller, ok := ownerKey(pod)
	if !ok {
		return store.Key{}, false
	}
	top, known := d.of[controller]
	if !known {
		top = d.s.declaredOwner(controller)
		d.of[controller] = top
	}
	return top.key, top.ok
}

// declaredOwner is the declared object that an object was made from, or itself.
func (s *Syncer) declaredOwner(key store.Key) declaredOwner {
	const generations = 7 // and the pod is one
	for range generations {
		obj := s.cfg.Store.Get(key)
		if obj == nil {
			break
		}
		if s.owns(obj) {
			return declaredOwner{key: store.KeyOf(obj), ok: true}
		}
		var ok bool
		if key, ok = ownerKey(obj); !ok {
			break
		}
	}
	return declaredOwner{}
}

func digestText(image string, digests map[string][]string) string {
	var parts []string
	for _, digest := range slices.Sorted(maps.Keys(digests)) {
		pods := digests[digest]
		slices.Sort(pods)
		const most = 3
		names := strings.Join(pods[:min(most, len(pods))], ", ")
		if more := len(pods) - most; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		parts = append(parts, digest+" in "+names)
	}
	return fmt.Sprintf("%s means %d images: %s; name the image by its digest to run one", image, len(digests), strings.Join(parts, "; "))
}
