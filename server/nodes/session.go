package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
	"headway.dev/headway/store"
)

// Bounds of what one session holds in memory.
const (
	greeting    = 20 * time.Second
	maxRenewals = 4   // that wait for the store
	maxEvents   = 500 // that wait to be written; the oldest goes first
	eventRate   = 20  // per second, in the long run
	eventBurst  = 1000
	maxTokens   = 4 * session.MaxPods // that wait to be signed
	// Messages that wait to be sent: while a session begins, all statuses of a node may be
	// answered, and its tokens signed, before the agent reads on.
	maxReplies = session.MaxHeld + maxTokens + 1000
	tokenRate  = 20 // per second, in the long run
	tokenBurst = maxTokens
	tokenBatch = 16 // signed before what else waits is written
)

// attendance is one session of one node.
type attendance struct {
	n      *Nodes
	node   string
	stream stream
	end    context.CancelCauseFunc
	lease  *coordinationv1.Lease // as this session wrote it
	grant  store.LeaseID
	epoch  int64
	renew  chan *session.Renew
	rate   *rate.Limiter
	asks   *rate.Limiter // for tokens

	mu      sync.Mutex
	dirty   map[store.Key]bool // objects to look at again
	order   []store.Key
	needed  map[store.Key]int // ConfigMaps, Secrets and claims, by how many pods refer to them; volumes, by how many claims
	newest  int64             // revision of a Service or EndpointSlice that is dirty or was
	gauge   gauge             // what the agent measures
	replies []*session.Down
	outward chan struct{} // dirty or replies have something

	version int32 // of the protocol, that the agent speaks
	routed  int64 // revision that the node's traffic goes by; under n.mu

	farewell farewell // of the writing goroutine

	inbox  inbox
	inward chan struct{} // the inbox has something
}

// stream is the wire of a session.
type stream interface {
	Send(*session.Down) error
	Recv() (*session.Up, error)
}

func (n *Nodes) attendance(node string, wire stream, end context.CancelCauseFunc) *attendance {
	return &attendance{
		n: n, node: node, stream: wire, end: end, renew: make(chan *session.Renew, maxRenewals),
		rate:  rate.NewLimiter(eventRate, eventBurst),
		asks:  rate.NewLimiter(tokenRate, tokenBurst),
		dirty: map[store.Key]bool{}, needed: map[store.Key]int{}, outward: make(chan struct{}, 1),
		inbox: newInbox(), inward: make(chan struct{}, 1),
	}
}

// Session implements session.NodeServer.
func (n *Nodes) Session(stream grpc.BidiStreamingServer[session.Up, session.Down]) error {
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	node, err := n.identify(ctx)
	if err != nil {
		return err
	}
	a := n.attendance(node, stream, end)
	if !n.enter() {
		return status.Error(codes.Unavailable, errClosing.Error())
	}
	defer n.running.Done()
	facts, err := a.greet(ctx)
	if err != nil {
		return err
	}
	return a.attend(ctx, facts)
}

// enter counts a session in, unless the server is closing.
func (n *Nodes) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.running.Add(1)
	return true
}

// greet reads the agent's first message and checks it.
func (a *attendance) greet(ctx context.Context) (*corev1.Node, error) {
	m, err := first(ctx, a.stream.Recv)
	if err != nil {
		return nil, err
	}
	return a.check(m.GetHello())
}

// check takes in a hello.
func (a *attendance) check(hello *session.Hello) (*corev1.Node, error) {
	switch {
	case hello == nil:
		return nil, status.Error(codes.InvalidArgument, "a session begins with a hello")
	case hello.Version != session.Version && hello.Version != session.Version-1:
		return nil, status.Errorf(codes.FailedPrecondition, "the agent speaks version %d of the protocol, this server %d and %d", hello.Version, session.Version, session.Version-1)
	}
	a.version = hello.Version
	facts, err := decodeNode(hello.Node, a.node)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return facts, nil
}

// first bounds how long a stream may stay silent at its start. A handler that
// returns ends the stream, and with it the reading goroutine.
func first[T any](ctx context.Context, recv func() (T, error)) (T, error) {
	type answer struct {
		m   T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		m, err := recv()
		got <- answer{m, err}
	}()
	timer := time.NewTimer(greeting)
	defer timer.Stop()
	var none T
	select {
	case r := <-got:
		return r.m, r.err
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	case <-timer.C:
		return none, status.Error(codes.DeadlineExceeded, "the agent sent nothing")
	}
}

// begin takes the epoch and makes the session the node's. After an error it is not.
func (a *attendance) begin(ctx context.Context, facts *corev1.Node) (err error) {
	if err := a.take(ctx); err != nil {
		return err
	}
	a.n.mu.Lock()
	older := a.n.sessions[a.node]
	if older != nil && older.epoch > a.epoch {
		a.n.mu.Unlock()
		return errReplaced
	}
	if older != nil {
		older.end(errReplaced)
	}
	a.n.sessions[a.node] = a
	a.n.mu.Unlock()
	defer func() {
		if err != nil {
			a.n.leave(a)
		}
	}()
	// Everything that an earlier session, on whichever server, was sent is in this
	// cache from here on, so the full set that follows lacks nothing.
	if err := a.n.cfg.Store.WaitRevision(ctx, a.epoch); err != nil {
		return err
	}
	if live := a.n.cfg.Store.Get(store.KeyOf(a.lease)); live == nil || live.GetResourceVersion() != a.lease.ResourceVersion {
		return errReplaced
	}
	if err := a.writeNode(ctx, facts); err != nil {
		return err
	}
	a.n.resumeLeaving(a.node)
	a.n.log.Info("node has a session", "node", a.node, "epoch", a.epoch)
	return nil
}

// attend serves the session until it ends.
func (a *attendance) attend(ctx context.Context, facts *corev1.Node) error {
	if err := a.begin(ctx, facts); err != nil {
		return asStatus(err)
	}
	defer a.n.leave(a)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer a.end(nil)
	wg.Go(func() { a.end(a.write(ctx)) })
	wg.Go(func() { a.end(a.keepAlive(ctx)) })
	lapse := time.AfterFunc(a.n.cfg.TTL, func() { a.end(errLapsed) })
	defer lapse.Stop()
	// Send and Recv may wait for the agent until this handler returns, so it cannot
	// wait for them; Close does.
	a.n.running.Go(func() { a.end(a.send(ctx)) })
	received := make(chan error, 1)
	a.n.running.Go(func() { received <- a.receive(lapse) })
	var err error
	select {
	case err = <-received:
		a.end(err)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	a.n.log.Info("session of a node ended", "node", a.node, "epoch", a.epoch, "why", err)
	return asStatus(err)
}

func asStatus(err error) error {
	if _, ok := status.FromError(err); ok || err == nil {
		return err
	}
	code := codes.Internal
	switch {
	case errors.Is(err, errReplaced), errors.Is(err, errLapsed):
		code = codes.Aborted
	case errors.Is(err, errClosing), errors.Is(err, store.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// take grants the node's lease anew and takes a new epoch on its key.
func (a *attendance) take(ctx context.Context) error {
	kv, ttl := a.n.cfg.Store.KV(), a.n.cfg.TTL
	grant, err := kv.Grant(ctx, ttl)
	if err != nil {
		return fmt.Errorf("grant the node's lease: %w", err)
	}
	for {
		lease, verb, err := a.nextLease(ctx)
		if err != nil {
			return err
		}
		epoch, err := a.n.cfg.Store.Commit(ctx, store.Txn{Ops: []store.Op{{Verb: verb, Object: lease, Lease: grant}}})
		switch {
		case err == nil:
			a.lease, a.grant, a.epoch = lease, grant, epoch
			return nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists), errors.Is(err, store.ErrNotFound):
			continue // another session of the node, or its end, came between
		default:
			return fmt.Errorf("take the node's epoch: %w", err)
		}
	}
}

// nextLease is the node's Lease object as a new session writes it.
func (a *attendance) nextLease(ctx context.Context) (*coordinationv1.Lease, store.Verb, error) {
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = Namespace, a.node
	verb := store.Create
	found, _, err := a.n.cfg.Store.GetAt(ctx, store.KeyOf(lease), 0)
	switch {
	case err == nil:
		verb, lease = store.Update, found.DeepCopyObject().(*coordinationv1.Lease)
	case errors.Is(err, store.ErrNotFound):
		store.Stamp(lease, a.n.now())
	default:
		return nil, "", fmt.Errorf("read the node's lease: %w", err)
	}
	seconds := int32(a.n.cfg.TTL / time.Second)
	lease.Spec.HolderIdentity = &a.node
	lease.Spec.LeaseDurationSeconds = &seconds
	lease.Spec.AcquireTime = microTime(a.n.now())
	lease.Spec.RenewTime = lease.Spec.AcquireTime
	return lease, verb, nil
}

// commit writes what the session causes, if it is still the node's.
func (a *attendance) commit(ctx context.Context, ops []store.Op) error {
	_, err := a.n.cfg.Store.Commit(ctx, store.Txn{If: []api.Object{a.lease}, Ops: ops})
	var ke *store.KeyError
	if errors.As(err, &ke) && ke.Key == store.KeyOf(a.lease) {
		return errReplaced
	}
	return err
}

// receive takes in what the agent sends until the stream ends.
func (a *attendance) receive(lapse *time.Timer) error {
	for {
		m, err := a.stream.Recv()
		if err != nil {
			return err
		}
		if m.GetRenew() != nil {
			lapse.Reset(a.n.cfg.TTL)
		}
		if err := a.accept(m); err != nil {
			return err
		}
	}
}

// accept takes in one message. An error ends the session.
func (a *attendance) accept(m *session.Up) error {
	switch m := m.Message.(type) {
	case *session.Up_Renew:
		select {
		case a.renew <- m.Renew:
		default:
			return status.Error(codes.ResourceExhausted, "more renewals than the store keeps up with")
		}
	case *session.Up_PodStatus:
		if !a.inbox.status(m.PodStatus) {
			return status.Errorf(codes.ResourceExhausted, "statuses of more than %d pods wait", session.MaxHeld)
		}
		notify(a.inward)
	case *session.Up_NodeStatus:
		node, err := decodeNode(m.NodeStatus, a.node)
		if err != nil {
			a.reply(refused("node status", err.Error()))
			return nil
		}
		a.inbox.node(node)
		notify(a.inward)
	case *session.Up_Routed:
		a.n.routed(a, m.Routed.Revision)
	case *session.Up_Figures:
		a.takeFigures(m.Figures)
	case *session.Up_TokenRequest:
		if !a.asks.AllowN(a.n.now(), 1) {
			r := m.TokenRequest
			a.reply(&session.Down{Message: &session.Down_Token{Token: &session.Token{Uid: r.Uid, Audience: r.Audience, Seconds: r.Seconds, Error: "the node asks for more tokens than it needs"}}})
			return nil
		}
		if !a.inbox.token(m.TokenRequest) {
			return status.Errorf(codes.ResourceExhausted, "requests for more than %d tokens wait", maxTokens)
		}
		notify(a.inward)
	case *session.Up_VolumeGone:
		if problem := a.takeGone(m.VolumeGone); problem != nil {
			a.reply(problem)
			return nil
		}
		notify(a.inward)
	case *session.Up_Event:
		if !a.rate.AllowN(a.n.now(), 1) {
			return nil // a flood of events says no more than its beginning
		}
		a.inbox.event(m.Event)
		notify(a.inward)
	default:
		return status.Error(codes.InvalidArgument, "a message that this server does not know, or a second hello")
	}
	return nil
}

// keepAlive does one renewal of the store's lease for each that the agent asks
// for, and none by itself (D4).
func (a *attendance) keepAlive(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case m := <-a.renew:
			if err := a.renewOnce(ctx, m); err != nil {
				return err
			}
		}
	}
}

func (a *attendance) renewOnce(ctx context.Context, m *session.Renew) error {
	ttl, err := a.n.cfg.Store.KV().KeepAlive(ctx, a.grant)
	switch {
	case errors.Is(err, store.ErrLeaseGone):
		return errLapsed
	case err != nil:
		return fmt.Errorf("renew the node's lease: %w", err) // the agent comes back, perhaps to a healthier server
	}
	a.reply(&session.Down{Message: &session.Down_Renewed{Renewed: &session.Renewed{Sent: m.Sent, TtlNanos: int64(ttl)}}})
	return nil
}

// reply has a message sent.
func (a *attendance) reply(m ...*session.Down) {
	a.mu.Lock()
	a.replies = append(a.replies, m...)
	full := len(a.replies) > maxReplies
	a.mu.Unlock()
	if full {
		a.end(status.Error(codes.ResourceExhausted, "the agent does not read"))
	}
	notify(a.outward)
}

func refused(what, why string) *session.Down {
	return &session.Down{Message: &session.Down_Refused{Refused: &session.Refused{What: what, Why: why}}}
}

func stored(m *session.PodStatus) *session.Down {
	return &session.Down{Message: &session.Down_Stored{Stored: &session.Stored{Namespace: m.Namespace, Name: m.Name, Uid: m.Uid, Sequence: m.Sequence}}}
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
