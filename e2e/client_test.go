package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// client speaks to the cluster with client-go, as the admin.
func (c *cluster) client() *kubernetes.Clientset {
	c.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.data(), "kubeconfig"))
	if err != nil {
		c.t.Fatal(err)
	}
	config.QPS, config.Burst = 100, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

// factory is a client-go informer factory whose informers end with the test.
func (c *cluster) factory() (informers.SharedInformerFactory, func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := informers.NewSharedInformerFactory(c.client(), 0)
	c.t.Cleanup(func() { cancel(); f.Shutdown() })
	return f, func() {
		c.t.Helper()
		f.Start(ctx.Done())
		wait, stop := context.WithTimeout(ctx, patience)
		defer stop()
		for kind, ok := range f.WaitForCacheSync(wait.Done()) {
			if !ok {
				c.t.Fatalf("the informer of %v did not sync", kind)
			}
		}
	}
}

// pods lists the pods of the default namespace with a label.
func (c *cluster) pods(selector string) []corev1.Pod {
	c.t.Helper()
	list, err := c.client().CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// life is what must stay the same while a container is not restarted.
type life struct {
	pod, container, id string
	started            string
	restarts           int32
}

// lives are those of all running containers of some pods. They wait until every
// container runs.
func (c *cluster) lives(selector string, n int) []life {
	c.t.Helper()
	var all []life
	eventually(c.t, fmt.Sprintf("%d containers of %s to run", n, selector), func() error {
		all = nil
		for _, p := range c.pods(selector) {
			for _, s := range p.Status.ContainerStatuses {
				if s.State.Running == nil || !isReady(&p) {
					return fmt.Errorf("container %s of %s does not run: %+v", s.Name, p.Name, s.State)
				}
				all = append(all, life{p.Name + " " + string(p.UID), s.Name, s.ContainerID, s.State.Running.StartedAt.UTC().Format(time.RFC3339), s.RestartCount})
			}
		}
		if len(all) != n {
			return fmt.Errorf("%d containers", len(all))
		}
		return nil
	})
	slices.SortFunc(all, func(a, b life) int { return strings.Compare(a.id, b.id) })
	return all
}

// same fails when a container was restarted or replaced.
func (c *cluster) same(when, selector string, before []life) {
	c.t.Helper()
	if after := c.lives(selector, len(before)); !slices.Equal(before, after) {
		c.t.Errorf("%s: containers are\n%+v\nwere\n%+v", when, after, before)
	}
}

// readyPods follows the Ready pods of a label through an informer.
type readyPods struct {
	mu  sync.Mutex
	ips map[string]string
}

func (c *cluster) followReady(label, value string) *readyPods {
	c.t.Helper()
	r := &readyPods{ips: map[string]string{}}
	f, start := c.factory()
	set := func(obj any) {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Labels[label] != value {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if isReady(p) {
			r.ips[p.Name] = p.Status.PodIP
		} else {
			delete(r.ips, p.Name)
		}
	}
	handle, err := f.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if tomb, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tomb.Obj
			}
			if p, ok := obj.(*corev1.Pod); ok {
				r.mu.Lock()
				delete(r.ips, p.Name)
				r.mu.Unlock()
			}
		},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	start()
	eventually(c.t, "the informer's handlers", func() error {
		if !handle.HasSynced() {
			return fmt.Errorf("not synced")
		}
		return nil
	})
	return r
}

func (r *readyPods) now() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.ips)
}

// hold keeps a push open in the background; wait returns what it printed.
func (c *cluster) hold() (wait func() string) {
	c.t.Helper()
	done := make(chan string, 1)
	go func() {
		out, err := c.push()
		done <- fmt.Sprintf("%s\n%v", out, err)
	}()
	return func() string { return <-done }
}

// healthy waits until a commit is applied and healthy.
func (c *cluster) healthy(commit string) {
	c.t.Helper()
	if out, err := c.headway("status", commit, "--wait", "--timeout", patience.String()); err != nil {
		c.t.Fatalf("commit %s is not healthy: %v\n%s", commit, err, out)
	}
}

// probing starts a cluster that has the test image.
func probing(t *testing.T, args ...string) *cluster {
	t.Helper()
	c := prepareCluster(t, args...)
	c.addProbe()
	c.start()
	c.waitReady()
	return c
}

// contains fails for each thing that a text does not say.
func contains(t *testing.T, what, text string, wanted ...string) {
	t.Helper()
	for _, w := range wanted {
		if !strings.Contains(text, w) {
			t.Errorf("%s does not say %q:\n%s", what, w, text)
		}
	}
}

// lineCount counts the numbered lines of the probe, each once and in order.
func lineCount(log []byte) (int, error) {
	n := 0
	for line := range bytes.Lines(log) {
		if !bytes.HasPrefix(line, []byte("line ")) {
			continue
		}
		if want := fmt.Sprintf("line %08d %085d\n", n, n); string(line) != want {
			return n, fmt.Errorf("line %d is %q", n, line)
		}
		n++
	}
	return n, nil
}
