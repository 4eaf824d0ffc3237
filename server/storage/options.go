package storage

import (
	"fmt"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	kubestorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Options makes every registry store its objects in a store.Store.
type Options struct {
	Store  *store.Store
	Scheme *runtime.Scheme
	Codecs serializer.CodecFactory
	Clock  store.Clock
	leases *leases
}

// NewOptions returns the options for all registries of one server.
func NewOptions(st *store.Store, scheme *runtime.Scheme, codecs serializer.CodecFactory, clock store.Clock) *Options {
	return &Options{Store: st, Scheme: scheme, Codecs: codecs, Clock: clock, leases: &leases{kv: st.KV(), now: clock}}
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (o *Options) GetRESTOptions(gr schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	kind, ok := api.ResourceKind(gr)
	if !ok {
		return generic.RESTOptions{}, fmt.Errorf("resource %s has no kind in package api", gr)
	}
	gv := kind.GroupVersion()
	config := storagebackend.Config{Codec: o.Codecs.LegacyCodec(gv), EncodeVersioner: gv}
	prefix := gr.Resource
	if gr.Group != "" {
		prefix = gr.Group + "/" + gr.Resource
	}
	return generic.RESTOptions{
		StorageConfig:           config.ForResource(gr),
		Decorator:               o.decorate(kind),
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: 1,
		ResourcePrefix:          prefix,
	}, nil
}

func (o *Options) decorate(kind api.Kind) generic.StorageDecorator {
	return func(_ *storagebackend.ConfigForResource, prefix string, _ func(runtime.Object) (string, error),
		newFunc, _ func() runtime.Object, _ kubestorage.AttrFunc, _ kubestorage.IndexerFuncs, _ *cache.Indexers,
	) (kubestorage.Interface, factory.DestroyFunc, error) {
		s := newStorage(o.Store, kind, prefix, newFunc, schemeCodec{scheme: o.Scheme, kind: kind}, o.leases, o.Clock)
		return s, func() {}, nil
	}
}
