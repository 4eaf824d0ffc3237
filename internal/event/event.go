package event

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TTL is how long an event is kept after it last occurred.
const TTL = time.Hour

const (
	maxMessage = 1024 // Kubernetes' own limit
	maxName    = 236  // of the object's part of an event's name, as it must fit 253
	patience   = 2 * time.Second
)

// Store is what a Recorder reads and writes.
type Store interface {
	store.Reader
	store.Writer
}

// Recorder records the events of one component. Its fields are set before the
// first use and not changed; a nil Recorder records nothing.
type Recorder struct {
	Store     Store
	Fence     func() store.Fence // of a leader's component; nil: none
	Now       store.Clock        // nil: time.Now
	Component string             // as Kubernetes names it: "deployment-controller"
	Log       *slog.Logger       // of events that could not be written; nil: silent

	mu     sync.Mutex
	limits limits
}

// Op returns the operation that records an event about obj, to be part of the
// caller's transaction; nothing when obj has had too many events lately.
func (r *Recorder) Op(obj api.Object, kind, reason, message string) []store.Op {
	if r == nil {
		return nil
	}
	now := r.now()
	r.mu.Lock()
	ok := r.limits.take(string(obj.GetUID()), now)
	r.mu.Unlock()
	if !ok {
		return nil
	}
	return []store.Op{r.op(obj, kind, reason, message, now)}
}

// Undo gives back what the events among ops took of the bounds, when their
// transaction was refused: else the tries would leave nothing to tell of the refusal.
func (r *Recorder) Undo(ops []store.Op) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range ops {
		if e, ok := op.Object.(*corev1.Event); ok && e.Source.Component == r.Component {
			r.limits.giveBack(string(e.InvolvedObject.UID))
		}
	}
}

// Event records an event about obj in a transaction of its own. It never fails
// the caller: an event that cannot be written is logged.
func (r *Recorder) Event(ctx context.Context, obj api.Object, kind, reason, message string) {
	ops := r.Op(obj, kind, reason, message)
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := r.commit(ctx, ops)
	if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrExists) || errors.Is(err, store.ErrNotFound) {
		// The same event was recorded or removed meanwhile; the cache may know by now.
		err = r.commit(ctx, []store.Op{r.op(obj, kind, reason, message, r.now())})
	}
	if err != nil && r.Log != nil && !errors.Is(err, store.ErrFenced) {
		r.Log.LogAttrs(ctx, slog.LevelWarn, "event not recorded", slog.String("reason", reason),
			slog.String("object", store.KeyOf(obj).String()), slog.String("error", err.Error()))
	}
}

func (r *Recorder) commit(ctx context.Context, ops []store.Op) error {
	txn := store.Txn{Ops: ops}
	if r.Fence != nil {
		txn.Fence = r.Fence()
	}
	_, err := r.Store.Commit(ctx, txn)
	return err
}

func (r *Recorder) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// op updates the event if the cache has it, else creates it.
func (r *Recorder) op(obj api.Object, kind, reason, message string, now time.Time) store.Op {
	message = shorten(message)
	about := reference(obj)
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	name := r.name(about, kind, reason, message)
	at := metav1.NewTime(now.Truncate(time.Second))
	key := store.Key{GroupResource: api.Events(), Namespace: namespace, Name: name}
	if before, ok := r.Store.Get(key).(*corev1.Event); ok {
		again := before.DeepCopy()
		again.Count++
		again.LastTimestamp = at
		return store.Op{Verb: store.Update, Object: again}
	}
	e := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject:      about,
		Reason:              reason,
		Message:             message,
		Source:              corev1.EventSource{Component: r.Component},
		ReportingController: r.Component,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
		Type:                kind,
	}
	store.Stamp(e, now)
	e.SetGeneration(0) // events have none
	return store.Op{Verb: store.Create, Object: e}
}

func reference(obj api.Object) corev1.ObjectReference {
	ref := corev1.ObjectReference{Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}
	if k, ok := api.KindOf(obj); ok {
		ref.APIVersion, ref.Kind = k.GroupVersion().String(), k.Kind
	}
	return ref
}

// name is the same for two events exactly when they say the same about the same
// object.
func (r *Recorder) name(about corev1.ObjectReference, kind, reason, message string) string {
	h := sha256.New()
	for _, part := range []string{r.Component, about.Kind, string(about.UID), kind, reason, message} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	object := about.Name
	if len(object) > maxName {
		object = strings.TrimRight(object[:maxName], ".-")
	}
	return object + "." + hex.EncodeToString(h.Sum(nil)[:8])
}

// shorten cuts a message to the limit, between two characters.
func shorten(s string) string {
	const more = "..."
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len(more)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + more
}
