package storage

import (
	"headway.dev/headway/api"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kubestorage "k8s.io/apiserver/pkg/storage"
)

// filter decides which stored objects a selector wants.
type filter struct {
	s         *Storage
	predicate kubestorage.SelectionPredicate
	all       bool // no selector at all
	labelOnly bool // labels are read from the stored form, without converting
}

func (s *Storage) filter(p kubestorage.SelectionPredicate) filter {
	sharded := p.ShardSelector != nil && !p.ShardSelector.Empty()
	return filter{
		s:         s,
		predicate: p,
		all:       p.Empty(),
		labelOnly: !sharded && (p.Field == nil || p.Field.Empty()) && p.Label != nil,
	}
}

func (f filter) matches(obj api.Object) (bool, error) {
	if f.all {
		return true, nil
	}
	if f.predicate.Label != nil && !f.predicate.Label.Matches(labels.Set(obj.GetLabels())) {
		return false, nil
	}
	if f.labelOnly {
		return true, nil
	}
	into, err := f.s.decoded(obj)
	if err != nil {
		return false, err
	}
	return f.predicate.Matches(into)
}

// decoded returns the registry's form of a stored object; it aliases it.
func (s *Storage) decoded(obj api.Object) (runtime.Object, error) {
	into := s.newObject()
	if err := s.codec.decode(obj, into); err != nil {
		return nil, kubestorage.NewInternalError(err)
	}
	return into, nil
}
