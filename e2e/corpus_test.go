package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"headway.dev/headway/api"
	"headway.dev/headway/internal/corpus"
)

// realFile is a file of the corpus that refers to nothing outside of itself.
type realFile struct {
	path, text string
	objects    []api.Object
	images     map[string]substitute
}

// unlike are the files that do not end with everything ready, and the text of the
// pods' state or of the push that tells so.
var unlike = map[string]struct{ state, why string }{
	"ContainerSolutions/kubernetes-examples/Pod/spec.containers.livenessProbe/advanced-liveness.yaml":         {state: "restarted", why: "the image is well for ten seconds, by design"},
	"ContainerSolutions/kubernetes-examples/broken-Pod/spec.containers.livenessProbe/liveness.yaml":           {state: "restarted", why: "its probe asks for a file that nobody makes"},
	"GoogleCloudPlatform/microservices-demo/kustomize/components/google-cloud-operations/otel-collector.yaml": {state: "not pulled", why: "its images are named by digest"},
	"redhat-cop/gitops-catalog/sandboxed-containers-operator/example/base/pod-kata.yaml":                      {state: "refused", why: "runtimeClassName"},
	"rook/rook/deploy/examples/csi/cephfs/kube-registry.yaml":                                                 {state: "no volume", why: "its class is of a driver that is not run"},
	"rook/rook/deploy/examples/mysql.yaml":                                                                    {state: "no volume", why: "its class is of a driver that is not run"},
}

// readRealFiles reads the corpus' standalone files.
func readRealFiles(t *testing.T) []realFile {
	t.Helper()
	dir := corpus.Dir(t)
	list, err := os.ReadFile(filepath.Join(dir, "valid.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	var out []realFile
	for line := range strings.Lines(string(list)) {
		columns := strings.Split(line, "\t")
		if len(columns) < 8 || columns[7] != "yes" {
			continue
		}
		f := realFile{path: columns[0] + "/" + columns[2], images: map[string]substitute{}}
		data, err := os.ReadFile(filepath.Join(dir, "valid", f.path))
		if err != nil {
			t.Fatal(err)
		}
		f.text = string(data)
		decoded, problems := api.DecodeFile(f.path, data, api.DecodeOptions{DefaultNamespace: "default"})
		if len(problems) > 0 {
			t.Fatalf("%s: %v", f.path, problems)
		}
		for _, m := range decoded {
			f.objects = append(f.objects, m.Object)
			spec := podSpec(m.Object)
			if spec == nil {
				continue
			}
			for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
				f.images[c.Image] = substituteFor(spec, &c)
			}
		}
		out = append(out, f)
	}
	if len(out) < 30 {
		t.Fatalf("only %d files", len(out))
	}
	return out
}

// podSpec is what an object makes pods of, or nil.
func podSpec(obj api.Object) *corev1.PodSpec {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}

// batches puts files together that can be in one cluster: no object, port of a node and
// image is in two of them, and their pods fit on one node of two CPUs.
func batches(files []realFile) [][]realFile {
	type batch struct {
		files []realFile
		taken map[string]bool
		cpu   int64
	}
	var all []*batch
next:
	for _, f := range files {
		keys, cpu := []string{}, int64(0)
		for image := range f.images {
			keys = append(keys, "image "+image)
		}
		for _, o := range f.objects {
			keys = append(keys, fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()))
			if s, ok := o.(*corev1.Service); ok {
				for _, p := range s.Spec.Ports {
					if p.NodePort != 0 {
						keys = append(keys, fmt.Sprint("port ", p.NodePort))
					}
				}
			}
			if spec := podSpec(o); spec != nil {
				for _, c := range spec.Containers {
					cpu += c.Resources.Requests.Cpu().MilliValue() * int64(replicas(o))
				}
			}
		}
		for _, b := range all {
			if b.cpu+cpu <= 1500 && !slices.ContainsFunc(keys, func(k string) bool { return b.taken[k] }) {
				b.files, b.cpu = append(b.files, f), b.cpu+cpu
				for _, k := range keys {
					b.taken[k] = true
				}
				continue next
			}
		}
		b := &batch{files: []realFile{f}, taken: map[string]bool{}, cpu: cpu}
		for _, k := range keys {
			b.taken[k] = true
		}
		all = append(all, b)
	}
	var out [][]realFile
	for _, b := range all {
		out = append(out, b.files)
	}
	return out
}

func replicas(obj api.Object) int32 {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		if o.Spec.Replicas != nil {
			return *o.Spec.Replicas
		}
	case *appsv1.StatefulSet:
		if o.Spec.Replicas != nil {
			return *o.Spec.Replicas
		}
	}
	return 1
}

// TestCorpus runs real manifests, unchanged, with images of ours under the names that
// they use, and waits for the state that Kubernetes documents for each.
func TestCorpus(t *testing.T) {
	t.Parallel()
	files := readRealFiles(t)
	runs := slices.DeleteFunc(slices.Clone(files), func(f realFile) bool { return unlike[f.path].state == "refused" })
	for i, batch := range batches(runs) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := prepareCluster(t)
			images, tree := map[string]substitute{}, map[string]string{
				".headway.yaml": "apiVersion: headway.dev/v1\nkind: Config\nallowStored: [Ingress]\n",
			}
			for _, f := range batch {
				tree[f.path] = f.text
				for ref, s := range f.images {
					images[ref] = s
				}
			}
			for _, ns := range homes(batch) {
				tree["namespaces/"+ns+".yaml"] = "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n"
			}
			c.serveSubstitutes(t, images)
			c.start()
			c.waitReady()
			c.write(map[string]string{".headway.yaml": tree[".headway.yaml"]})
			c.commit("settings")
			for _, f := range files {
				if u := unlike[f.path]; i == 0 && u.state == "refused" {
					c.isRefused(f, u.why)
				}
			}
			c.write(tree)
			c.commit("real manifests")
			// It tells of them until all are well, which some never are.
			pushed := make(chan string, 1)
			go func() {
				if printed, err := c.push(); err != nil && strings.Contains(printed, "rejected") {
					pushed <- printed
				}
			}()
			client := c.client()
			for _, f := range batch {
				eventually(t, f.path, func() error {
					select {
					case printed := <-pushed:
						t.Fatalf("the push was refused:\n%s", printed)
					default:
					}
					return f.state(t.Context(), client)
				})
			}
		})
	}
}

// homes are the namespaces that objects of some files are in and no file declares.
func homes(batch []realFile) (out []string) {
	declared := []string{"default", "kube-system", ""}
	for _, f := range batch {
		for _, o := range f.objects {
			if _, ok := o.(*corev1.Namespace); ok {
				declared = append(declared, o.GetName())
			}
		}
	}
	for _, f := range batch {
		for _, o := range f.objects {
			if ns := o.GetNamespace(); !slices.Contains(declared, ns) && !slices.Contains(out, ns) {
				out = append(out, ns)
			}
		}
	}
	return out
}

// isRefused pushes a file that cannot run here, and takes it back.
func (c *cluster) isRefused(f realFile, field string) {
	c.t.Helper()
	c.write(map[string]string{f.path: f.text})
	c.commit("cannot run")
	printed, err := c.push()
	if err == nil {
		c.t.Errorf("%s was taken:\n%s", f.path, printed)
	}
	contains(c.t, "the push", printed, f.path+":", field)
	c.git("reset", "--hard", "--quiet", "HEAD~1")
}

// state is nil once everything of a file is as it should be.
func (f realFile) state(ctx context.Context, client kubernetes.Interface) error {
	for _, o := range f.objects {
		if err := stateOf(ctx, client, o, unlike[f.path].state); err != nil {
			return fmt.Errorf("%T %s: %w", o, o.GetName(), err)
		}
	}
	return nil
}

func stateOf(ctx context.Context, client kubernetes.Interface, obj api.Object, unlike string) error {
	ns, name, now := obj.GetNamespace(), obj.GetName(), metav1.GetOptions{}
	if podSpec(obj) != nil && unlike != "" {
		return unwell(ctx, client, obj, unlike)
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		d, err := client.AppsV1().Deployments(ns).Get(ctx, name, now)
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue && d.Status.ReadyReplicas == replicas(o) {
				return nil
			}
		}
		return fmt.Errorf("not available: %d ready", d.Status.ReadyReplicas)
	case *appsv1.StatefulSet:
		s, err := client.AppsV1().StatefulSets(ns).Get(ctx, name, now)
		if err == nil && s.Status.ReadyReplicas != replicas(o) {
			err = fmt.Errorf("%d ready", s.Status.ReadyReplicas)
		}
		return err
	case *corev1.Pod:
		p, err := client.CoreV1().Pods(ns).Get(ctx, name, now)
		if err == nil && !isReady(p) {
			err = fmt.Errorf("phase %s", p.Status.Phase)
		}
		return err
	case *batchv1.Job:
		j, err := client.BatchV1().Jobs(ns).Get(ctx, name, now)
		if err == nil && j.Status.Succeeded == 0 {
			err = errors.New("not complete")
		}
		return err
	case *batchv1.CronJob:
		j, err := client.BatchV1().CronJobs(ns).Get(ctx, name, now)
		if err == nil && j.Status.LastSuccessfulTime == nil {
			err = errors.New("no Job of it has completed")
		}
		return err
	case *corev1.Service:
		return served(ctx, client, o, unlike)
	case *corev1.PersistentVolumeClaim:
		claim, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name, now)
		if err == nil && (claim.Status.Phase == corev1.ClaimPending) != (unlike == "no volume") {
			err = fmt.Errorf("phase %s", claim.Status.Phase)
		}
		return err
	}
	return nil // data
}

// served is nil once a Service whose selector meets a pod has an endpoint that is ready.
func served(ctx context.Context, client kubernetes.Interface, s *corev1.Service, unlike string) error {
	slices, err := client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=" + s.Name})
	if err != nil {
		return err
	}
	ready := 0
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready++
			}
		}
	}
	if (ready == 0) != (unlike != "") {
		return fmt.Errorf("%d endpoints are ready", ready)
	}
	return nil
}

// unwell is nil once a pod of obj is in the state.
func unwell(ctx context.Context, client kubernetes.Interface, obj api.Object, state string) error {
	pods, err := client.CoreV1().Pods(obj.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	told := errors.New("no pod yet")
	for _, p := range pods.Items {
		if p.Name != obj.GetName() && !strings.HasPrefix(p.Name, obj.GetName()+"-") {
			continue
		}
		statuses := append(slices.Clone(p.Status.InitContainerStatuses), p.Status.ContainerStatuses...)
		told = fmt.Errorf("phase %s, %d containers", p.Status.Phase, len(statuses))
		for _, s := range statuses {
			switch {
			case state == "restarted" && s.RestartCount > 0 && s.LastTerminationState.Terminated != nil:
				return nil
			case state == "not pulled" && s.State.Waiting != nil && (s.State.Waiting.Reason == "ErrImagePull" || s.State.Waiting.Reason == "ImagePullBackOff"):
				return nil
			}
		}
		for _, c := range p.Status.Conditions {
			if state == "no volume" && c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "PersistentVolumeClaim") {
				return nil
			}
		}
	}
	return told
}
