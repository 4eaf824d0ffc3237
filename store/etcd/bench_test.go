package etcd_test

import (
	"fmt"
	"testing"

	"headway.dev/headway/store"
	"headway.dev/headway/store/etcd"
	corev1 "k8s.io/api/core/v1"
)

// BenchmarkCommit is one transaction, on disk when it returns.
func BenchmarkCommit(b *testing.B) {
	for _, size := range []int{1, store.BulkObjects} {
		b.Run(fmt.Sprintf("%d objects", size), func(b *testing.B) {
			s := opened(b, start(b, etcd.Config{Log: quiet()}))
			objs := make([]*corev1.ConfigMap, size)
			x := store.Txn{}
			for i := range objs {
				objs[i] = marker(fmt.Sprint("c", i))
				x.Ops = append(x.Ops, store.Op{Verb: store.Create, Object: objs[i]})
			}
			for b.Loop() {
				if _, err := s.Commit(b.Context(), x); err != nil {
					b.Fatal(err)
				}
				for i := range x.Ops {
					x.Ops[i].Verb = store.Update
				}
			}
		})
	}
}

// BenchmarkCommitSeen is a transaction until the cache shows it.
func BenchmarkCommitSeen(b *testing.B) {
	s := opened(b, start(b, etcd.Config{Log: quiet()}))
	obj := marker("c")
	op := store.Op{Verb: store.Create, Object: obj}
	for b.Loop() {
		rev, err := s.Commit(b.Context(), store.Txn{Ops: []store.Op{op}})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.WaitRevision(b.Context(), rev); err != nil {
			b.Fatal(err)
		}
		op.Verb = store.Update
	}
}

// BenchmarkCurrent is a linearizable read of the revision.
func BenchmarkCurrent(b *testing.B) {
	s := opened(b, start(b, etcd.Config{Log: quiet()}))
	for b.Loop() {
		if _, err := s.Current(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart is from nothing to a member that serves.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		e := start(b, etcd.Config{Dir: b.TempDir(), Log: quiet()})
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
