package storage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"headway.dev/headway/api"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// codec turns what registries handle into what the store keeps, and back.
type codec interface {
	// encode returns a v1 object that shares no memory with obj.
	encode(obj runtime.Object) (api.Object, error)
	// decode fills into from obj; the two then share memory.
	decode(obj api.Object, into runtime.Object) error
}

// schemeCodec converts between a kind's internal and v1 form.
type schemeCodec struct {
	scheme *runtime.Scheme
	kind   api.Kind
}

func (c schemeCodec) encode(obj runtime.Object) (api.Object, error) {
	out := c.kind.New()
	if err := c.scheme.Convert(obj.DeepCopyObject(), out, nil); err != nil {
		return nil, fmt.Errorf("convert %T to %s: %w", obj, c.kind.GroupVersionKind, err)
	}
	return out, nil
}

func (c schemeCodec) decode(obj api.Object, into runtime.Object) error {
	if err := c.scheme.Convert(obj, into, nil); err != nil {
		return fmt.Errorf("convert %s %s to %T: %w", c.kind.Kind, obj.GetName(), into, err)
	}
	return nil
}

// copyOf returns a copy of a cached object that its receiver may write to.
func copyOf(obj api.Object) api.Object { return obj.DeepCopyObject().(api.Object) }

// same says whether two objects would be stored as the same bytes.
func same(a, b api.Object) (bool, error) {
	x, err := stored(a)
	if err != nil {
		return false, err
	}
	y, err := stored(b)
	if err != nil {
		return false, err
	}
	return bytes.Equal(x, y), nil
}

// stored is the content that counts of an object: all but its revision and its
// type, which are not part of the stored value.
func stored(obj api.Object) ([]byte, error) {
	c := copyOf(obj)
	c.SetResourceVersion("")
	c.GetObjectKind().SetGroupVersionKind(emptyKind)
	if m, ok := c.(interface{ Marshal() ([]byte, error) }); ok {
		return m.Marshal()
	}
	return json.Marshal(c)
}

// fillList sets the items of a list object: n items, each written by fill into a
// zero element.
func fillList(list runtime.Object, n int, fill func(i int, into runtime.Object) error) error {
	items, err := itemsOf(list)
	if err != nil {
		return err
	}
	out := reflect.MakeSlice(items.Type(), n, n)
	for i := range n {
		into, ok := out.Index(i).Addr().Interface().(runtime.Object)
		if !ok {
			return fmt.Errorf("items of %T are no objects", list)
		}
		if err := fill(i, into); err != nil {
			return err
		}
	}
	items.Set(out)
	return nil
}

func itemsOf(list runtime.Object) (reflect.Value, error) {
	v, err := conversion.EnforcePtr(list)
	if err != nil {
		return reflect.Value{}, err
	}
	items := v.FieldByName("Items")
	if !items.IsValid() || items.Kind() != reflect.Slice {
		return reflect.Value{}, fmt.Errorf("%T has no items", list)
	}
	return items, nil
}
