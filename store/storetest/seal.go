package storetest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"headway.dev/headway/api"
	"headway.dev/headway/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func sealed(t *testing.T, kv store.KV) {
	const plain = "correct horse battery staple"
	s := loaded(t, kv)
	one, two := secret("one", plain), secret("two", "other")
	ca := &api.Authority{ObjectMeta: metav1.ObjectMeta{Name: "ca"}, Key: []byte(plain)}
	commit(t, s, create(one, two, ca))
	settle(t, s)
	if got := s.Get(store.KeyOf(one)).(*corev1.Secret); string(got.Data["password"]) != plain {
		t.Fatalf("got %q", got.Data["password"])
	}
	all := mustRange(t, kv, store.RangeRequest{Start: store.Prefix, End: strings.TrimSuffix(store.Prefix, "/") + "0"})
	values := map[string][]byte{}
	for _, e := range all.Entries {
		values[e.Key] = e.Value
		if bytes.Contains(e.Value, []byte(plain)) || bytes.Contains(e.Value, []byte("password")) {
			t.Errorf("the value of %s can be read", e.Key)
		}
	}
	if len(values) != 3 {
		t.Fatalf("%d values", len(values))
	}
	load := func(key []byte) error {
		return store.New(kv, store.Options{Seal: key}).Load(context.Background())
	}
	failure := func(what, say string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), plain) {
			t.Errorf("%s: error %v, want one that says %q", what, err, say)
		}
	}
	failure("another key", "sealed with another key", load(bytes.Repeat([]byte{8}, store.SealKeyBytes)))
	failure("no key", "without a key", load(nil))
	failure("a short key", "must have 32", load([]byte("short")))
	_, err := store.New(kv, store.Options{}).Commit(t.Context(), create(secret("three", plain)))
	failure("write without a key", "without a key", err)

	path := store.KeyOf(one).Path()
	for what, value := range map[string][]byte{
		"copied from another object": values[store.KeyOf(two).Path()],
		"damaged":                    append(bytes.Clone(values[path][:len(values[path])-1]), values[path][len(values[path])-1]^1),
		"cut short":                  values[path][:9],
		"does not fit a kind":        {1}, // planted without the key
	} {
		if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: path, Value: value}}); err != nil {
			t.Fatal(err)
		}
		err := load(SealKey())
		failure(what, what, err)
		var ke *store.KeyError
		if !errors.As(err, &ke) || ke.Key != store.KeyOf(one) {
			t.Errorf("%s: %v does not name the object", what, err)
		}
	}
}

func undecodable(t *testing.T, kv store.KV) {
	good := config("default", "a", 1)
	commit(t, loaded(t, kv), create(good))
	path := store.KeyOf(good).Path()
	value := mustRange(t, kv, store.RangeRequest{Start: path}).Entries[0].Value
	for what, w := range map[string]store.Write{
		"empty":             {Key: path},
		"unknown mark":      {Key: path, Value: []byte{0x7f, 1}},
		"not protobuf":      {Key: path, Value: []byte{1, 0xff, 0xff}},
		"another's value":   {Key: store.Key{GroupResource: api.ConfigMaps(), Namespace: "default", Name: "b"}.Path(), Value: value},
		"a pod cut in half": {Key: store.KeyOf(pod("default", "p", "", "")).Path(), Value: []byte{1, 0x12, 0x7f}},
	} {
		if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: path, Value: value}, {Key: w.Key, Value: w.Value}}[boolInt(w.Key == path):]); err != nil {
			t.Fatal(err)
		}
		err := store.New(kv, store.Options{}).Load(t.Context())
		var ke *store.KeyError
		if !errors.As(err, &ke) || ke.Key.Path() != w.Key {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: w.Key, Delete: true}}); err != nil {
			t.Fatal(err)
		}
	}
	// What this version has no kind for is none of its business.
	if _, err := kv.Commit(t.Context(), nil, []store.Write{{Key: store.Prefix + "new.dev/things/default/x", Value: []byte{9}}, {Key: store.Prefix + "odd", Value: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	if err := store.New(kv, store.Options{}).Load(t.Context()); err != nil {
		t.Errorf("unknown resource: %v", err)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
