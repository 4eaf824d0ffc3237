package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"headway.dev/headway/store"
)

// classify gives an error that came from etcd the store's class, if one fits.
func classify(err error) error {
	if err == nil {
		return nil
	}
	class := classOf(err)
	if class == nil || errors.Is(err, class) {
		return err
	}
	return fmt.Errorf("%w: %w", class, err)
}

func classOf(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return store.ErrCompacted
	case errors.Is(err, rpctypes.ErrFutureRev):
		return store.ErrFuture
	case errors.Is(err, rpctypes.ErrNoSpace):
		return store.ErrFull
	case errors.Is(err, rpctypes.ErrRequestTooLarge), errors.Is(err, rpctypes.ErrTooManyOps):
		return store.ErrTooLarge
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return store.ErrLeaseGone
	case errors.Is(err, rpctypes.ErrTooManyRequests), errors.Is(err, rpctypes.ErrNotLeader),
		errors.Is(err, clientv3.ErrNoAvailableEndpoints),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return store.ErrUnavailable
	}
	code := codes.Unknown
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		code = known.Code()
	} else if s, ok := status.FromError(err); ok {
		code = s.Code()
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal,
		codes.Unknown: // such as a member that is stopping; nobody can say what happened
		return store.ErrUnavailable
	}
	return nil
}
