package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// route measures how long after a pod is seen Ready a Service leads to it: its first
// pod, asked through the cluster IP all the time from before it was there.
func (b *bench) route(ctx context.Context, r *report) error {
	service := "apiVersion: v1\nkind: Service\nmetadata: {name: %[1]s, namespace: default}\nspec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: 8080}]}\n"
	var took []time.Duration
	for i := range b.runs {
		app := fmt.Sprintf("routed-%d", i)
		_, wait, err := b.repo.push(ctx, map[string]string{"service.yaml": fmt.Sprintf(service, app)})
		if err == nil {
			err = wait()
		}
		if err != nil {
			return err
		}
		svc, err := b.cluster.client.CoreV1().Services("default").Get(ctx, app, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read the Service: %w", err)
		}
		answered := make(chan time.Time, 1)
		asking, stop := context.WithCancel(ctx)
		go ask(asking, "http://"+svc.Spec.ClusterIP, answered)
		_, ready, err := b.deploy(ctx, app, 1, "1")
		if err != nil {
			stop()
			return err
		}
		select {
		case at := <-answered:
			took = append(took, max(at.Sub(ready), 0))
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, _, err := b.withdraw(ctx, app); err != nil {
			return err
		}
	}
	r.Routed = seconds(median(took))
	_, wait, err := b.repo.push(ctx, map[string]string{"service.yaml": ""})
	if err != nil {
		return err
	}
	return wait()
}

// ask asks a URL until somebody answers, and says when that was.
func ask(ctx context.Context, url string, answered chan<- time.Time) {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			answered <- time.Now()
			return
		}
	}
}
