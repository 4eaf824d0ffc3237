package nodes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// decodeNode reads a Node that an agent sent about itself.
func decodeNode(raw []byte, name string) (*corev1.Node, error) {
	if len(raw) > session.MaxNode {
		return nil, fmt.Errorf("a node of %d bytes is too large, at most %d", len(raw), session.MaxNode)
	}
	node := &corev1.Node{}
	if err := node.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("decode the node: %w", err)
	}
	if node.Name != name {
		return nil, fmt.Errorf("the certificate is of node %q, the message of node %q", name, node.Name)
	}
	return node, nil
}

// writeNode makes or updates the session's own Node. That nothing is to be done it
// believes only of a cache that is where the store is: the leader may have said
// meanwhile that the node is lost.
func (a *attendance) writeNode(ctx context.Context, facts *corev1.Node) error {
	sure := false
	err := a.retry(ctx, func() error {
		live, _ := a.n.cfg.Store.Get(store.Key{GroupResource: api.Nodes(), Name: a.node}).(*corev1.Node)
		if live == nil {
			node := mergeNode(&corev1.Node{}, facts)
			node.Name = a.node
			store.Stamp(node, a.n.now())
			return a.commit(ctx, []store.Op{{Verb: store.Create, Object: node}})
		}
		next := mergeNode(live, facts)
		if equality.Semantic.DeepEqual(live, next) {
			if sure {
				return nil
			}
			sure = true
			return store.ErrConflict // caught up with, and tried again
		}
		return a.commit(ctx, []store.Op{{Verb: store.Update, Object: next}})
	})
	if err != nil && !errors.Is(err, errReplaced) {
		return fmt.Errorf("write node %s: %w", a.node, err)
	}
	return err
}

// mergeNode is live with everything that an agent writes taken from facts. The
// spec, taints above all, and other labels stay as they are.
func mergeNode(live, facts *corev1.Node) *corev1.Node {
	next := live.DeepCopy()
	for _, k := range slices.Sorted(maps.Keys(facts.Labels)) {
		if session.SettableLabel(k) {
			metav1.SetMetaDataLabel(&next.ObjectMeta, k, facts.Labels[k])
		}
	}
	for k := range live.Annotations {
		if _, said := facts.Annotations[k]; session.SettableAnnotation(k) && !said {
			delete(next.Annotations, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(facts.Annotations)) {
		if session.SettableAnnotation(k) {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, k, facts.Annotations[k])
		}
	}
	from, to := facts.Status, &next.Status
	to.Capacity, to.Allocatable = withExtended(from.Capacity, to.Capacity), withExtended(from.Allocatable, to.Allocatable)
	to.Addresses, to.NodeInfo, to.Images = from.Addresses, from.NodeInfo, from.Images
	for _, c := range from.Conditions {
		if !agentNodeCondition(c.Type) {
			continue
		}
		i := slices.IndexFunc(to.Conditions, func(x corev1.NodeCondition) bool { return x.Type == c.Type })
		if i < 0 {
			to.Conditions = append(to.Conditions, c)
			continue
		}
		if to.Conditions[i].Status == c.Status {
			c.LastTransitionTime = to.Conditions[i].LastTransitionTime
		}
		to.Conditions[i] = c
	}
	return next
}

// withExtended is a list of the agent's with the extended resources that somebody
// else gave the node (kubectl patch node --subresource=status). They have a domain
// in their names, which what an agent knows of has not.
func withExtended(agents, live corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, agents)
	for name, quantity := range live {
		if _, known := agents[name]; !known && strings.Contains(string(name), "/") {
			out[name] = quantity
		}
	}
	return out
}

// The conditions of a node that its agent writes.
func agentNodeCondition(t corev1.NodeConditionType) bool {
	switch t {
	case corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable, api.ForeignContainers:
		return true
	}
	return false
}

func microTime(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t)
	return &m
}
