package store_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
)

// A leadership that its holder renews itself (D9): it lasts while it is renewed in
// time, and is given up before the backend may give it to another.
func TestD9_StandAndRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		kv := memory.NewAt(time.Now)
		one, two := store.New(kv, store.Options{}), store.New(kv, store.Options{})
		term, err := one.Stand(ctx, "one", 10*time.Second)
		if err != nil || term == nil {
			t.Fatalf("nobody leads and one does not: %v, %v", term, err)
		}
		if other, err := two.Stand(ctx, "two", 10*time.Second); other != nil || err != nil {
			t.Fatalf("two leads beside one: %v, %v", other, err)
		}
		for range 5 {
			again, ok := term.Renew(ctx)
			if !ok || again <= 0 || again > 5*time.Second {
				t.Fatalf("renewed in time: again in %v, %v", again, ok)
			}
			time.Sleep(again)
		}
		kv.Fail(func(string) error { return store.ErrUnavailable })
		if again, ok := term.Renew(ctx); !ok || again > time.Second {
			t.Fatalf("one request that fails ends it: again in %v, %v", again, ok)
		}
		kv.Fail(nil)
		time.Sleep(9 * time.Second)
		if _, ok := term.Renew(ctx); ok {
			t.Fatal("it goes on although the backend may have given it to another")
		}
		select {
		case <-term.Done():
		default:
			t.Fatal("it is lost and its holder is not told")
		}
		time.Sleep(10 * time.Second)
		next, err := two.Stand(ctx, "two", 10*time.Second)
		if err != nil || next == nil || next.Fence == term.Fence {
			t.Fatalf("two does not succeed: %v, %v", next, err)
		}
		if err := next.Resign(ctx); err != nil {
			t.Fatal(err)
		}
		if who, err := one.Leader(ctx); who != "" || err != nil {
			t.Fatalf("%q leads after it has resigned, %v", who, err)
		}
		kv.Fail(func(op string) error {
			if op == "commit" {
				return store.ErrUnavailable
			}
			return nil
		})
		if term, err := one.Stand(ctx, "one", time.Second); term != nil || !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("it leads without having written: %v, %v", term, err)
		}
	})
}
