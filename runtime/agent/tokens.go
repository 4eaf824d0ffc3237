package agent

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/session"
	"headway.dev/headway/runtime/volume"
)

const (
	tokenOldest   = 24 * time.Hour   // after which a token is renewed, however long it is good
	tokenJitter   = 10 * time.Second // over which the renewals of pods are spread
	tokenPatience = 5 * time.Second  // that a pod waits for its first token before an event says so
)

// tokenKey names one token of a pod's account.
type tokenKey struct {
	uid types.UID
	session.WantedToken
}

// token is what the server gave, and when.
type token struct {
	text  string // is told nobody but the pod (R14)
	since time.Time
	life  time.Duration
}

// renewal is when a token is to be renewed, as the kubelet does it: after 80 % of its
// life, and once a day.
func (t token) renewal(uid types.UID) time.Time {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid)) // never fails
	spread := tokenJitter * time.Duration(h.Sum32()%1000) / 1000
	return t.since.Add(min(t.life/5*4, tokenOldest) - spread)
}

// asking is a token that the server was asked for.
type asking struct {
	since   time.Time
	failed  backoff
	refusal string // why the server gave none
	open    bool   // it has not answered
}

// tokens are those of the node's pods. Agent.mu guards them.
type tokens struct {
	held   map[tokenKey]token
	asked  map[tokenKey]*asking
	unsent []tokenKey // of asked, to be sent in this order
}

func newTokens() tokens {
	return tokens{held: map[tokenKey]token{}, asked: map[tokenKey]*asking{}}
}

// ask has the server asked for a token, unless it was or has just refused it.
func (s *tokens) ask(key tokenKey, now time.Time) *asking {
	a := s.asked[key]
	if a == nil {
		a = &asking{since: now}
		s.asked[key] = a
	}
	if !a.open && !now.Before(a.failed.until()) {
		a.open = true
		s.unsent = append(s.unsent, key)
	}
	return a
}

// again has everything that is not answered asked once more, by a new session.
func (s *tokens) again() {
	s.unsent = nil
	for key, a := range s.asked {
		if a.open {
			s.unsent = append(s.unsent, key)
		}
	}
	sortTokens(s.unsent)
}

// forget drops what is of a pod that is gone.
func (s *tokens) forget(uid types.UID) {
	for key := range s.held {
		if key.uid == uid {
			delete(s.held, key)
		}
	}
	for key := range s.asked {
		if key.uid == uid {
			delete(s.asked, key)
		}
	}
}

// request takes the next request out that is to be sent; nil when there is none.
func (a *Agent) request() *session.Up {
	s := &a.tokens
	for len(s.unsent) > 0 {
		key := s.unsent[0]
		s.unsent = s.unsent[1:]
		e, asked := a.entries[key.uid], s.asked[key]
		if asked == nil || !asked.open || e == nil || e.pod == nil {
			continue
		}
		return &session.Up{Message: &session.Up_TokenRequest{TokenRequest: &session.TokenRequest{
			Namespace: e.pod.Namespace, Name: e.pod.Name, Uid: string(key.uid), Audience: key.Audience, Seconds: key.Seconds,
		}}}
	}
	return nil
}

// token is what a volume of a pod shows. One that cannot be renewed stays. The caller
// holds mu.
func (a *Agent) token(pod *corev1.Pod, want session.WantedToken) (string, error) {
	key := tokenKey{pod.UID, want}
	if held, ok := a.tokens.held[key]; ok {
		return held.text, nil
	}
	now := a.cfg.Now()
	asked := a.tokens.ask(key, now)
	notify(a.send)
	switch {
	case asked.refusal != "":
		return "", fmt.Errorf("failed to fetch token: %s", asked.refusal)
	case now.Sub(asked.since) < tokenPatience:
		return "", fmt.Errorf("failed to fetch token: it was asked for: %w", volume.ErrComing)
	}
	return "", errors.New("failed to fetch token: no server has answered yet")
}

// renew has the tokens of a pod that runs renewed that are old enough, and says when to
// look again. The caller holds mu.
func (a *Agent) renew(e *entry, now time.Time) (next time.Time) {
	if e.pod == nil || e.released || e.sandbox == nil || !e.sandbox.Ready || e.pod.DeletionTimestamp != nil || terminal(e.record.last.Phase) {
		return next
	}
	soonest := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	for _, want := range session.Tokens(&e.pod.Spec) {
		key := tokenKey{e.uid, want}
		if held, ok := a.tokens.held[key]; ok {
			if at := held.renewal(e.uid); now.Before(at) {
				soonest(at)
				continue
			}
		}
		asked := a.tokens.ask(key, now)
		notify(a.send)
		if !asked.open {
			soonest(asked.failed.until())
		}
	}
	return next
}

// given takes in what the server answered.
func (a *Agent) given(m *session.Token) {
	key := tokenKey{types.UID(m.Uid), session.WantedToken{Audience: m.Audience, Seconds: m.Seconds}}
	asked, e := a.tokens.asked[key], a.entries[key.uid]
	if asked == nil || !asked.open || e == nil || e.pod == nil {
		return // of a pod that is gone, or of an earlier session
	}
	now := a.cfg.Now()
	if m.Error != "" || m.Token == "" || m.LifeNanos <= 0 {
		if m.Error == "" {
			m.Error = "the server gave an empty one"
		}
		if asked.refusal != m.Error {
			a.log.Warn("no token of its account for a pod", "namespace", e.pod.Namespace, "pod", e.pod.Name, "why", m.Error)
		}
		asked.open, asked.refusal, asked.failed = false, m.Error, asked.failed.next(now, errorFirst, errorMost)
	} else {
		delete(a.tokens.asked, key)
		a.tokens.held[key] = token{text: m.Token, since: now, life: time.Duration(m.LifeNanos)}
		a.keep.saveToken(e.pod.Namespace, key, a.tokens.held[key])
	}
	if e.record.sandbox.forObject {
		e.record.sandbox.backoff.Delay = 0
	}
	a.outdate(e)
}

// The fields of a Secret by which a token outlives its agent, in memory.
const (
	tokenText     = "token"
	tokenUID      = "uid"
	tokenAudience = "audience"
	tokenSeconds  = "seconds"
	tokenSince    = "since" // Unix time, nanoseconds
	tokenLife     = "life"  // nanoseconds
)

func (t token) secret(namespace string, key tokenKey) *corev1.Secret {
	s := &corev1.Secret{Data: map[string][]byte{
		tokenText: []byte(t.text), tokenUID: []byte(key.uid), tokenAudience: []byte(key.Audience),
		tokenSeconds: strconv.AppendInt(nil, key.Seconds, 10), tokenSince: strconv.AppendInt(nil, t.since.UnixNano(), 10), tokenLife: strconv.AppendInt(nil, int64(t.life), 10),
	}}
	s.Namespace, s.Name = namespace, key.name()
	return s
}

// name tells a token from the others of its namespace.
func (k tokenKey) name() string { return fmt.Sprintf("%s %d %s", k.uid, k.Seconds, k.Audience) }

// tokenFrom reads a token back; false for what is none.
func tokenFrom(s *corev1.Secret) (key tokenKey, t token, ok bool) {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(string(s.Data[name]), 10, 64)
		if err != nil || n <= 0 {
			return 0
		}
		return n
	}
	since, life := number(tokenSince), number(tokenLife)
	key = tokenKey{types.UID(s.Data[tokenUID]), session.WantedToken{Audience: string(s.Data[tokenAudience]), Seconds: number(tokenSeconds)}}
	t = token{text: string(s.Data[tokenText]), since: time.Unix(0, since), life: time.Duration(life)}
	return key, t, t.text != "" && key.uid != "" && key.Seconds > 0 && since > 0 && life > 0
}

// restore takes over the tokens that an earlier agent was given; those of pods that are
// gone go.
func (a *Agent) restore(kept []*corev1.Secret) {
	for _, s := range kept {
		key, t, ok := tokenFrom(s)
		if e := a.entries[key.uid]; ok && e != nil && e.pod != nil {
			a.tokens.held[key] = t
			continue
		}
		a.keep.dropTokenNamed(s.Namespace, s.Name)
	}
}

// forgetTokens drops the tokens of a pod that is gone.
func (a *Agent) forgetTokens(uid types.UID, namespace string) {
	for key := range a.tokens.held {
		if key.uid == uid {
			a.keep.dropTokenNamed(namespace, key.name())
		}
	}
	a.tokens.forget(uid)
}

func sortTokens(keys []tokenKey) {
	slices.SortFunc(keys, func(x, y tokenKey) int { return strings.Compare(x.name(), y.name()) })
}
