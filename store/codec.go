package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A value in the backend is one mark byte and a body. The mark says how the body
// is encoded, and whether it is sealed.
const (
	markProtobuf byte = 0x01 // the v1 type of a Kubernetes kind
	markJSON     byte = 0x02 // a kind of ours
	markSealed   byte = 0x80 // added to one of the others
)

// wire is what the generated Kubernetes types can do.
type wire interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// codec turns objects into values and back.
type codec struct {
	sealer *sealer // nil: there is no key
	specs  *specs
}

// encode returns the value of obj under path. The object's resourceVersion and
// TypeMeta are not part of it: the first is the key's revision, the second is
// told by the path.
func (c codec) encode(kind api.Kind, path string, obj api.Object) ([]byte, error) {
	// The caller owns obj until Commit returns, so it may be changed for a moment.
	version, gvk := obj.GetResourceVersion(), obj.GetObjectKind().GroupVersionKind()
	obj.SetResourceVersion("")
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	mark, body, err := marshal(obj)
	obj.SetResourceVersion(version)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	if !kind.Sealed {
		return append([]byte{mark}, body...), nil
	}
	if c.sealer == nil {
		return nil, errors.New("encode: this kind is sealed and the store was opened without a key")
	}
	mark |= markSealed
	return append([]byte{mark}, c.sealer.seal(mark, path, body)...), nil
}

func marshal(obj api.Object) (byte, []byte, error) {
	if w, ok := obj.(wire); ok {
		body, err := w.Marshal()
		return markProtobuf, body, err
	}
	body, err := json.Marshal(obj)
	return markJSON, body, err
}

// decode returns the object behind an entry, with its resourceVersion.
func (c codec) decode(kind api.Kind, e Entry) (api.Object, error) {
	if len(e.Value) == 0 {
		return nil, errors.New("decode: empty value")
	}
	mark, body := e.Value[0], e.Value[1:]
	if sealed := mark&markSealed != 0; sealed != kind.Sealed {
		// Accepting either would let whoever can write to the backend plant a
		// Secret without having the key.
		return nil, fmt.Errorf("decode: mark %#x does not fit a kind with sealed=%t", mark, kind.Sealed)
	}
	if kind.Sealed {
		if c.sealer == nil {
			return nil, errors.New("decode: the value is sealed and the store was opened without a key")
		}
		var err error
		if body, err = c.sealer.open(mark, e.Key, body); err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
	}
	obj := kind.New()
	if err := c.unmarshal(mark&^markSealed, body, obj); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	obj.SetResourceVersion(strconv.FormatInt(e.ModRevision, 10))
	return obj, nil
}

func (c codec) unmarshal(mark byte, body []byte, obj api.Object) error {
	switch w, isWire := obj.(wire); {
	case mark == markProtobuf && isWire:
		if pod, ok := obj.(*corev1.Pod); ok && c.specs != nil {
			return c.specs.unmarshal(body, pod)
		}
		return w.Unmarshal(body)
	case mark == markJSON && !isWire:
		return json.Unmarshal(body, obj)
	default:
		return fmt.Errorf("mark %#x is not of this kind's encoding; was it written by a newer version?", mark)
	}
}
