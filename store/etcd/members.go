package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"headway.dev/headway/store"
)

// Member is one of the cluster's.
type Member struct {
	Name    string // "" until it has started
	PeerURL string
	Voter   bool
}

// Members lists the members, sorted by peer URL.
func (e *Etcd) Members(ctx context.Context) ([]Member, error) {
	list, err := e.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", classify(err))
	}
	out := make([]Member, 0, len(list.Members))
	for _, m := range list.Members {
		out = append(out, Member{Name: m.Name, PeerURL: strings.Join(m.PeerURLs, ","), Voter: !m.IsLearner})
	}
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.PeerURL, b.PeerURL) })
	return out, nil
}

// Add announces a member before its first start. It returns the Cluster that the
// member starts with, together with Join. Adding it again gives the same answer.
// It has no vote until it has caught up, so a machine that never comes up costs
// no majority.
func (e *Etcd) Add(ctx context.Context, name, peerURL string) (cluster string, err error) {
	var members []*pb.Member
	var added *clientv3.MemberAddResponse
	err = e.patiently(ctx, func() (err error) {
		added, err = e.client.MemberAddAsLearner(ctx, []string{peerURL})
		return err
	})
	switch {
	case err == nil:
		members = added.Members
	case errors.Is(err, rpctypes.ErrPeerURLExist), errors.Is(err, rpctypes.ErrMemberExist):
		list, err := e.client.MemberList(ctx)
		if err != nil {
			return "", fmt.Errorf("add member %s: %w", name, classify(err))
		}
		members = list.Members
	default:
		return "", fmt.Errorf("add member %s: %w", name, classify(err))
	}
	var pairs []string
	for _, m := range members {
		known := m.Name
		if slices.Contains(m.PeerURLs, peerURL) {
			if known != "" && known != name {
				return "", fmt.Errorf("add member %s: %s has its peer URL %s", name, known, peerURL)
			}
			known = name
		}
		if known == "" { // announced and not started: only its URL counts
			known = fmt.Sprintf("%x", m.ID)
		}
		for _, u := range m.PeerURLs {
			pairs = append(pairs, known+"="+u)
		}
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ","), nil
}

// Remove takes a member out of the cluster for good; its data must not be used
// again. Unknown names are no error: it may be the second try.
func (e *Etcd) Remove(ctx context.Context, name string) error {
	list, err := e.client.MemberList(ctx)
	if err != nil {
		return fmt.Errorf("remove member %s: %w", name, classify(err))
	}
	for _, m := range list.Members {
		if m.Name != name {
			continue
		}
		err := e.patiently(ctx, func() error {
			_, err := e.client.MemberRemove(ctx, m.ID)
			return err
		})
		if err != nil && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return fmt.Errorf("remove member %s: %w", name, classify(err))
		}
	}
	return nil
}

// etcd changes its membership only when all members have been connected for 5
// seconds, and lets in one member after the other, so one change soon after
// another must wait.
const (
	changeAgain = 200 * time.Millisecond
	changeMost  = 15 * time.Second
)

// passing are the refusals of a change that pass: members that have just
// connected, and a former one that has not caught up.
func passing() []error {
	return []error{rpctypes.ErrUnhealthy, rpctypes.ErrMemberNotEnoughStarted, rpctypes.ErrTooManyLearners}
}

func (e *Etcd) patiently(ctx context.Context, change func() error) error {
	ctx, cancel := context.WithTimeout(ctx, changeMost)
	defer cancel()
	tick := time.NewTicker(changeAgain)
	defer tick.Stop()
	for {
		err := change()
		if !slices.ContainsFunc(passing(), func(p error) bool { return errors.Is(err, p) }) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// promoteAgain is how often a joining member asks for its vote while it catches
// up.
const promoteAgain = 100 * time.Millisecond

func (e *Etcd) promote(ctx context.Context, id uint64) error {
	tick := time.NewTicker(promoteAgain)
	defer tick.Stop()
	for {
		_, err := e.client.MemberPromote(ctx, id)
		switch {
		case err == nil, errors.Is(err, rpctypes.ErrMemberNotLearner):
			return nil
		case errors.Is(err, rpctypes.ErrMemberLearnerNotReady), errors.Is(classify(err), store.ErrUnavailable):
		default:
			return fmt.Errorf("become a voting member: %w", classify(err))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("become a voting member: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
