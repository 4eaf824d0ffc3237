package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// pod is what a client has seen of one pod, and when. The times are those of the
// arrival of the events: the API's own have only seconds.
type pod struct {
	name, app, container string
	restarts             int32
	created, bound       time.Time
	ready                time.Time // the first time; zero when it is not Ready now
	running              time.Time // of the newest container
}

// deployment is what a client has seen of one Deployment.
type deployment struct {
	created time.Time
	rolled  bool // its newest generation is everywhere, and nothing else
}

// observer follows the Deployments and pods of the default namespace.
type observer struct {
	mu          sync.Mutex
	pods        map[types.UID]*pod
	gone        map[string][]time.Time // when the pods of an app went
	deployments map[string]*deployment
	changed     chan struct{}
	failed      error
}

// observe starts to watch; it ends with ctx.
func observe(ctx context.Context, c *cluster) (*observer, error) {
	o := &observer{pods: map[types.UID]*pod{}, gone: map[string][]time.Time{}, deployments: map[string]*deployment{}, changed: make(chan struct{})}
	pods, err := c.client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	deployments, err := c.client.AppsV1().Deployments("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		pods.Stop()
		return nil, fmt.Errorf("watch Deployments: %w", err)
	}
	go o.follow(ctx, pods)
	go o.follow(ctx, deployments)
	return o, nil
}

func (o *observer) follow(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for {
		select {
		case e, ok := <-w.ResultChan():
			now := time.Now()
			o.mu.Lock()
			if !ok {
				o.failed = errors.New("a watch has ended")
			} else {
				o.note(e, now)
			}
			close(o.changed)
			o.changed = make(chan struct{})
			o.mu.Unlock()
			if !ok {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

func (o *observer) note(e watch.Event, now time.Time) {
	switch object := e.Object.(type) {
	case *corev1.Pod:
		if e.Type == watch.Deleted {
			delete(o.pods, object.UID)
			app := object.Labels["app"]
			o.gone[app] = append(o.gone[app], now)
			return
		}
		p := o.pods[object.UID]
		if p == nil {
			p = &pod{name: object.Name, app: object.Labels["app"], created: now}
			o.pods[object.UID] = p
		}
		p.note(object, now)
	case *appsv1.Deployment:
		if e.Type == watch.Deleted {
			delete(o.deployments, object.Name)
			return
		}
		d := o.deployments[object.Name]
		if d == nil {
			d = &deployment{created: now}
			o.deployments[object.Name] = d
		}
		want, s := *object.Spec.Replicas, object.Status
		d.rolled = s.ObservedGeneration == object.Generation && s.UpdatedReplicas == want && s.AvailableReplicas == want && s.Replicas == want
	case *metav1.Status:
		o.failed = fmt.Errorf("a watch failed: %s", object.Message)
	}
}

func (p *pod) note(object *corev1.Pod, now time.Time) {
	if p.bound.IsZero() && object.Spec.NodeName != "" {
		p.bound = now
	}
	for _, s := range object.Status.ContainerStatuses {
		p.restarts = s.RestartCount
		if s.State.Running != nil && p.container != s.ContainerID {
			p.container, p.running = s.ContainerID, now
		}
	}
	isReady := false
	for _, c := range object.Status.Conditions {
		isReady = isReady || c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	}
	switch {
	case !isReady:
		p.ready = time.Time{}
	case p.ready.IsZero():
		p.ready = now
	}
}

// await waits until check is content with what was seen, and returns the time of
// the event that made it so.
func (o *observer) await(ctx context.Context, what string, check func() bool) (time.Time, error) {
	for {
		o.mu.Lock()
		now, good, changed, failed := time.Now(), check(), o.changed, o.failed
		o.mu.Unlock()
		if good {
			return now, nil
		}
		if failed != nil {
			return now, fmt.Errorf("wait for %s: %w", what, failed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, fmt.Errorf("wait for %s: %w", what, context.Cause(ctx))
		}
	}
}

// of are the pods of one app. It is called within a check.
func (o *observer) of(app string) []*pod {
	var pods []*pod
	for _, p := range o.pods {
		if p.app == app {
			pods = append(pods, p)
		}
	}
	return pods
}

// ready counts the Ready pods of one app. It is called within a check.
func (o *observer) ready(app string) int {
	n := 0
	for _, p := range o.of(app) {
		if !p.ready.IsZero() {
			n++
		}
	}
	return n
}
