package store

import (
	"context"
	"fmt"
)

// Release ends the leadership that identity holds, if it does. It is for a
// process that knows that whoever held it is gone, such as its own earlier life
// that was killed: the cluster then has a leader at once and not only when the
// old lease has run out. Whoever held it is fenced off all the same (R4).
func (s *Store) Release(ctx context.Context, identity string) error {
	r, err := s.kv.Range(ctx, RangeRequest{Start: ElectionKey})
	if err != nil {
		return fmt.Errorf("release the leadership of %s: %w", identity, err)
	}
	if len(r.Entries) == 0 || string(r.Entries[0].Value) != identity {
		return nil
	}
	held := Compare{Key: ElectionKey, Create: true, Revision: r.Entries[0].CreateRevision}
	// A compare that fails means that the leadership changed hands meanwhile.
	if _, err := s.kv.Commit(ctx, []Compare{held}, []Write{{Key: ElectionKey, Delete: true}}); err != nil {
		return fmt.Errorf("release the leadership of %s: %w", identity, err)
	}
	return nil
}
