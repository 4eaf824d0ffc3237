package storage

import (
	"context"
	"errors"
	"testing"
	"time"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/example"
	kubestorage "k8s.io/apiserver/pkg/storage"
	suite "k8s.io/apiserver/pkg/storage/testing"
)

// exampleCodec keeps the pods of Kubernetes' own storage suite as real pods, so
// that the suite runs on our storage as it is.
type exampleCodec struct{}

func (exampleCodec) encode(obj runtime.Object) (api.Object, error) {
	in, ok := obj.DeepCopyObject().(*example.Pod)
	if !ok {
		return nil, errors.New("not an example pod")
	}
	out := &corev1.Pod{ObjectMeta: in.ObjectMeta}
	out.Spec.NodeName = in.Spec.NodeName
	out.Spec.RestartPolicy = corev1.RestartPolicy(in.Spec.RestartPolicy)
	out.Spec.TerminationGracePeriodSeconds = in.Spec.TerminationGracePeriodSeconds
	out.Spec.SchedulerName = in.Spec.SchedulerName
	out.Spec.ServiceAccountName = in.Spec.ServiceAccountName
	out.Status.Phase = corev1.PodPhase(in.Status.Phase)
	out.Status.Message = in.Status.Message
	return out, nil
}

func (exampleCodec) decode(obj api.Object, into runtime.Object) error {
	in, ok := obj.(*corev1.Pod)
	if !ok {
		return errors.New("not a pod")
	}
	out := into.(*example.Pod)
	*out = example.Pod{ObjectMeta: in.ObjectMeta}
	out.Spec.NodeName = in.Spec.NodeName
	out.Spec.RestartPolicy = example.RestartPolicy(in.Spec.RestartPolicy)
	out.Spec.TerminationGracePeriodSeconds = in.Spec.TerminationGracePeriodSeconds
	out.Spec.SchedulerName = in.Spec.SchedulerName
	out.Spec.ServiceAccountName = in.Spec.ServiceAccountName
	out.Status.Phase = example.PodPhase(in.Status.Phase)
	out.Status.Message = in.Status.Message
	return nil
}

// running returns a store over a memory backend whose cache follows it.
func running(t *testing.T, window int) (*store.Store, *memory.KV) {
	t.Helper()
	kv := memory.New()
	st := store.New(kv, store.Options{Window: window})
	ctx, cancel := context.WithCancel(context.Background())
	if err := st.Load(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- st.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return st, kv
}

func examplePods(t *testing.T) (*Storage, *memory.KV) {
	t.Helper()
	st, kv := running(t, 0)
	kind, _ := api.ResourceKind(api.Pods())
	s := newStorage(st, kind, "/pods", func() runtime.Object { return &example.Pod{} }, exampleCodec{}, &leases{kv: kv, now: time.Now}, time.Now)
	return s, kv
}

// compact forgets everything before a revision. The suite counts on a revision
// that this raises, as Kubernetes' own compactor does.
func compact(kv *memory.KV) suite.Compaction {
	return func(ctx context.Context, t *testing.T, rv string) {
		rev, err := kubestorage.APIObjectVersioner{}.ParseResourceVersion(rv)
		if err != nil {
			t.Fatal(err)
		}
		if err := kv.Compact(ctx, int64(rev)); err != nil {
			t.Fatal(err)
		}
		raise(kv)(ctx, t)
	}
}

// raise makes the backend's revision grow by a key that no watch of the store sees.
func raise(kv *memory.KV) suite.IncreaseRVFunc {
	return func(ctx context.Context, t *testing.T) int64 {
		out, err := kv.Commit(ctx, nil, []store.Write{{Key: "/elsewhere", Value: []byte("x")}})
		if err != nil {
			t.Fatal(err)
		}
		return out.Revision
	}
}

// contract is one part of Kubernetes' own suite for storages.
type contract func(ctx context.Context, t *testing.T, s *Storage, kv *memory.KV)

// only wraps the parts that need nothing but the storage.
func only(run func(context.Context, *testing.T, kubestorage.Interface)) contract {
	return func(ctx context.Context, t *testing.T, s *Storage, _ *memory.KV) { run(ctx, t, s) }
}

// TestSuite runs Kubernetes' own contract for storages. Left out are the parts that
// rename an object under its key or keep one without a name, which no registry
// does, and those about the encoding in etcd.
func TestSuite(t *testing.T) {
	for _, c := range []struct {
		name string
		run  contract
	}{
		{"Create", func(ctx context.Context, t *testing.T, s *Storage, kv *memory.KV) {
			suite.RunTestCreate(ctx, t, s, func(context.Context, *testing.T, string) {})
		}},
		{"CreateWithTTL", only(suite.RunTestCreateWithTTL)},
		{"CreateWithKeyExist", only(suite.RunTestCreateWithKeyExist)},
		{"Get", only(suite.RunTestGet)},
		{"UnconditionalDelete", only(suite.RunTestUnconditionalDelete)},
		{"ConditionalDelete", only(suite.RunTestConditionalDelete)},
		{"DeleteWithSuggestion", only(suite.RunTestDeleteWithSuggestion)},
		{"DeleteSuggestConflict", only(suite.RunTestDeleteWithSuggestionAndConflict)},
		{"DeleteWithConflict", only(suite.RunTestDeleteWithConflict)},
		{"DeleteSuggestedGone", only(suite.RunTestDeleteWithSuggestionOfDeletedObject)},
		{"ValidateDeletion", only(suite.RunTestValidateDeletionWithSuggestion)},
		{"ValidateOnlySuggestion", only(suite.RunTestValidateDeletionWithOnlySuggestionValid)},
		{"PreconditionalDelete", only(suite.RunTestPreconditionalDeleteWithSuggestion)},
		{"PreconditionSuggestion", only(suite.RunTestPreconditionalDeleteWithOnlySuggestionPass)},
		{"List", func(ctx context.Context, t *testing.T, s *Storage, kv *memory.KV) {
			suite.RunTestList(ctx, t, s, compact(kv), false, suite.NewKubernetesRecorder(nil))
		}},
		{"ConsistentList", func(ctx context.Context, t *testing.T, s *Storage, kv *memory.KV) {
			suite.RunTestConsistentList(ctx, t, s, raise(kv), true, true, false)
		}},
		{"GetListNonRecursive", func(ctx context.Context, t *testing.T, s *Storage, kv *memory.KV) {
			suite.RunTestGetListNonRecursive(ctx, t, raise(kv), s)
		}},
		{"GetListRecursivePrefix", only(suite.RunTestGetListRecursivePrefix)},
		{"ListPaging", only(suite.RunTestListPaging)},
		{"NamespaceScopedList", only(suite.RunTestNamespaceScopedList)},
		{"UpdateWithTTL", only(suite.RunTestGuaranteedUpdateWithTTL)},
		{"Watch", only(suite.RunTestWatch)},
		{"DeleteTriggerWatch", only(suite.RunTestDeleteTriggerWatch)},
		{"WatchFromNonZero", only(suite.RunTestWatchFromNonZero)},
		{"DelayedWatchDelivery", only(suite.RunTestDelayedWatchDelivery)},
		{"WatchContextCancel", only(suite.RunTestWatchContextCancel)},
		{"WatcherTimeout", only(suite.RunTestWatcherTimeout)},
		{"WatchDeleteLatestRV", only(suite.RunTestWatchDeleteEventObjectHaveLatestRV)},
		{"NamespaceScopedWatch", only(suite.RunTestNamespaceScopedWatch)},
		{"BackwardCompatibility", only(suite.RunSendInitialEventsBackwardCompatibility)},
		{"WatchSemantics", only(suite.RunWatchSemantics)},
		{"InitialEventsExtended", only(suite.RunWatchSemanticInitialEventsExtended)},
		{"WatchListMatchSingle", only(suite.RunWatchListMatchSingle)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, kv := examplePods(t)
			c.run(t.Context(), t, s, kv)
		})
	}
}
