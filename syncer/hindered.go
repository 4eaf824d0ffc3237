package syncer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/reconcile"
	"headway.dev/headway/store"
)

// hindrancePause is the least time between two messages about what keeps one commit
// from being applied: an error may say something else each time.
const hindrancePause = 10 * time.Second

// hindered reports why a commit could not be applied that is not refused: the cause lies
// elsewhere, and the commit is tried again. It returns that cause.
func (s *Syncer) hindered(ctx context.Context, src *api.Source, head string, cause error) error {
	var wait *reconcile.Wait
	if ctx.Err() != nil || errors.As(cause, &wait) || isConflict(cause) || errors.Is(cause, store.ErrFenced) {
		return cause
	}
	now := s.cfg.Now()
	if src.Status.Head == head && now.Sub(s.hindrance) < hindrancePause {
		return cause
	}
	status := src.Status
	status.Head, status.Refused, status.Problems = head, "", nil
	status.Message = "could not be applied, and is tried again: " + clip(api.Printable(cause.Error()), maxMessage)
	err := s.writeStatus(ctx, src, status)
	switch {
	case err == nil:
		s.hindrance = now
	case !isConflict(err): // or the next try tells it
		return errors.Join(cause, fmt.Errorf("say so in the status: %w", err))
	}
	return cause
}
