package nodes

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// signTokens answers some of the requests that wait, and says whether there were any.
func (a *attendance) signTokens(ctx context.Context) (signed bool) {
	for range tokenBatch {
		m := a.inbox.takeToken()
		if m == nil {
			break
		}
		a.reply(&session.Down{Message: &session.Down_Token{Token: a.token(ctx, m)}})
		signed = true
	}
	return signed
}

// token answers a request for a token. A node gets none but those that the volumes of
// its own pods show, by uid.
func (a *attendance) token(ctx context.Context, m *session.TokenRequest) *session.Token {
	out := &session.Token{Uid: m.Uid, Audience: m.Audience, Seconds: m.Seconds}
	key := store.Key{GroupResource: api.Pods(), Namespace: m.Namespace, Name: m.Name}
	pod, _ := a.n.cfg.Store.Get(key).(*corev1.Pod)
	switch {
	case pod == nil || string(pod.UID) != m.Uid || pod.Spec.NodeName != a.node:
		out.Error = fmt.Sprintf("pod %s/%s with uid %s is not bound to node %s", m.Namespace, m.Name, m.Uid, a.node)
		return out
	case ended(pod):
		out.Error = fmt.Sprintf("pod %s/%s has ended", m.Namespace, m.Name)
		return out
	case !slices.Contains(session.Tokens(&pod.Spec), session.WantedToken{Audience: m.Audience, Seconds: m.Seconds}):
		out.Error = fmt.Sprintf("no volume of pod %s/%s shows a token for the audience %q and %d seconds", m.Namespace, m.Name, m.Audience, m.Seconds)
		return out
	case a.n.cfg.Tokens == nil:
		out.Error = "this server signs no tokens"
		return out
	}
	token, life, err := a.n.cfg.Tokens.ForPod(ctx, pod, m.Audience, m.Seconds)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Token, out.LifeNanos = token, int64(life)
	return out
}

// without is a pod as an agent is sent it that knows no tokens: what else its volumes
// show is there, and what it gets when the agent is replaced comes into the same
// volumes.
func without(pod *corev1.Pod) *corev1.Pod {
	if len(session.Tokens(&pod.Spec)) == 0 {
		return pod
	}
	out := pod.DeepCopy()
	for i := range out.Spec.Volumes {
		if p := out.Spec.Volumes[i].Projected; p != nil {
			p.Sources = slices.DeleteFunc(p.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
		}
	}
	return out
}
