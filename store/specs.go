package store

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

// specs lets the pods of one template share one decoded spec (D3): a pod's spec
// is looked up by its encoded bytes without the node name, and the pod gets a
// shallow copy with its own node name. It remembers at most two generations of
// specsPerGeneration, so specs that nobody decodes any more are forgotten.
type specs struct {
	mu         sync.Mutex
	young, old map[string]*corev1.PodSpec
}

const specsPerGeneration = 512

func newSpecs() *specs { return &specs{young: map[string]*corev1.PodSpec{}} }

// Field numbers of Pod and PodSpec in k8s.io/api/core/v1/generated.proto.
const (
	podFieldSpec      protowire.Number = 2
	specFieldNodeName protowire.Number = 10
)

// unmarshal decodes a pod into pod, which is empty.
func (s *specs) unmarshal(body []byte, pod *corev1.Pod) error {
	rest, spec, err := cut(body, podFieldSpec)
	if err != nil {
		return err
	}
	if err := pod.Unmarshal(rest); err != nil {
		return err
	}
	if spec == nil {
		return nil
	}
	spec, node, err := cut(spec, specFieldNodeName)
	if err != nil {
		return err
	}
	shared, err := s.get(spec)
	if err != nil {
		return err
	}
	pod.Spec = *shared
	pod.Spec.NodeName = string(node)
	return nil
}

func (s *specs) get(encoded []byte) (*corev1.PodSpec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if spec := s.young[string(encoded)]; spec != nil {
		return spec, nil
	}
	spec := s.old[string(encoded)]
	if spec == nil {
		spec = &corev1.PodSpec{}
		if err := spec.Unmarshal(encoded); err != nil {
			return nil, err
		}
	}
	if len(s.young) >= specsPerGeneration {
		s.old, s.young = s.young, make(map[string]*corev1.PodSpec, specsPerGeneration)
	}
	s.young[string(encoded)] = spec
	return spec, nil
}

// cut returns a protobuf message without one of its fields, and that field's
// content, nil when it has none. A field that occurs twice would have to be
// merged, which no encoder of ours writes: it is an error.
func cut(msg []byte, field protowire.Number) (rest, content []byte, err error) {
	rest = msg
	for i := 0; i < len(msg); {
		num, typ, n := protowire.ConsumeField(msg[i:])
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		if num == field {
			if typ != protowire.BytesType || content != nil {
				return nil, nil, fmt.Errorf("field %d is not one string or message", field)
			}
			_, _, tag := protowire.ConsumeTag(msg[i:])
			content, _ = protowire.ConsumeBytes(msg[i+tag:])
			rest = slices.Concat(msg[:i], msg[i+n:])
		}
		i += n
	}
	return rest, content, nil
}
