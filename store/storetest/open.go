package storetest

import (
	"bytes"
	"context"
	"testing"

	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
)

// SealKey is a key for tests.
func SealKey() []byte { return bytes.Repeat([]byte{7}, store.SealKeyBytes) }

// Open returns a loaded store in memory. Nothing runs it: Settle makes its cache
// catch up.
func Open(t testing.TB) *store.Store {
	t.Helper()
	s := store.New(memory.New(), store.Options{Seal: SealKey()})
	if err := s.Load(context.Background()); err != nil {
		t.Fatalf("open a store: %v", err)
	}
	return s
}

// Settle applies everything that the store's backend has delivered.
func Settle(t testing.TB, s *store.Store) {
	t.Helper()
	for {
		more, err := s.Step(context.Background())
		if err != nil {
			t.Fatalf("step the store: %v", err)
		}
		if !more {
			return
		}
	}
}
