package server

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// podLog is pods/log: it checks what is asked and leaves the rest to the node.
type podLog struct {
	store  *genericregistry.Store
	scheme *runtime.Scheme
	logs   LogStreamer
}

var (
	_ rest.GetterWithOptions = (*podLog)(nil)
	_ rest.StorageMetadata   = (*podLog)(nil)
)

// New implements rest.Storage.
func (l *podLog) New() runtime.Object { return &core.Pod{} }

// Destroy implements rest.Storage; the pods' registry owns the store.
func (l *podLog) Destroy() {}

// ProducesMIMETypes implements rest.StorageMetadata.
func (l *podLog) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata.
func (l *podLog) ProducesObject(string) any { return "" }

// NewGetOptions implements rest.GetterWithOptions.
func (l *podLog) NewGetOptions() (runtime.Object, bool, string) {
	return &core.PodLogOptions{}, false, ""
}

// Get implements rest.GetterWithOptions.
func (l *podLog) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	asked, ok := options.(*core.PodLogOptions)
	if !ok {
		return nil, fmt.Errorf("log options are a %T", options)
	}
	if errs := validation.ValidatePodLogOptions(asked, false); len(errs) > 0 {
		return nil, apierrors.NewInvalid(core.Kind("PodLogOptions"), name, errs)
	}
	obj, err := l.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, opts := &corev1.Pod{}, &corev1.PodLogOptions{}
	if err := l.scheme.Convert(obj, pod, nil); err != nil {
		return nil, fmt.Errorf("convert pod %s: %w", name, err)
	}
	if err := l.scheme.Convert(asked, opts, nil); err != nil {
		return nil, fmt.Errorf("convert log options: %w", err)
	}
	if opts.Container, err = container(pod, opts.Container); err != nil {
		return nil, err
	}
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s has no node yet, so no log: see kubectl describe pod %s", name, name))
	}
	if l.logs == nil {
		return nil, apierrors.NewServiceUnavailable("this server has no sessions with nodes, ask another one for logs")
	}
	return &logStream{logs: l.logs, pod: pod, opts: opts}, nil
}

// container finds the container whose log is meant: the named one, or the only
// one.
func container(pod *corev1.Pod, name string) (string, error) {
	var regular, all []string
	for _, c := range pod.Spec.InitContainers {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		regular, all = append(regular, c.Name), append(all, c.Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		all = append(all, pod.Spec.EphemeralContainers[i].Name)
	}
	if name == "" {
		if len(regular) == 1 {
			return regular[0], nil
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, all))
	}
	for _, known := range all {
		if known == name {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s, choose one of: %v", name, pod.Name, all))
}

// logStream is the answer of pods/log: an object only in name.
type logStream struct {
	logs LogStreamer
	pod  *corev1.Pod
	opts *corev1.PodLogOptions
}

var _ rest.ResourceStreamer = (*logStream)(nil)

// GetObjectKind implements runtime.Object.
func (l *logStream) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (l *logStream) DeepCopyObject() runtime.Object {
	c := *l
	return &c
}

// InputStream implements rest.ResourceStreamer.
func (l *logStream) InputStream(ctx context.Context, _, _ string) (io.ReadCloser, bool, string, error) {
	stream, err := l.logs.Logs(ctx, l.pod, l.opts)
	if err != nil {
		return nil, false, "", err
	}
	return stream, l.opts.Follow, "text/plain", nil
}
