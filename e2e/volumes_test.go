package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// theSecret is nowhere on the disk of a node (R14).
const theSecret = "hunter2-and-nobody-else"

func site(text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site}\ndata: {page: %q, other: same}\n", text)
}

// storing is a pod that serves what its volumes hold.
func storing(name, volumes, mounts string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, fsGroup: 4242}
  containers:
  - name: main
    image: %[2]s
    args: [serve]
    env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [%[4]s]
  volumes: [%[3]s]
`, name, probeName, volumes, mounts)
}

// waiting is why the container of a pod waits, and what the pod's events say.
func (c *cluster) waiting(name string) (reason, events string) {
	c.t.Helper()
	pod := get[corev1.Pod](c, "pod", name)
	if s := pod.Status.ContainerStatuses; len(s) == 1 && s[0].State.Waiting != nil {
		reason = s[0].State.Waiting.Reason + " " + s[0].State.Waiting.Message
	}
	list := get[corev1.EventList](c, "events", "--field-selector", "involvedObject.name="+name)
	for _, e := range list.Items {
		events += e.Reason + " " + e.Message + "\n"
	}
	return reason, events
}

// Volumes of every type in a running container: what a push changes in a ConfigMap is
// seen without a restart, also when the agent was killed in between; a Secret is in
// memory only; and all of it goes with the pod, but for what is the machine's.
func TestVolumes(t *testing.T) {
	t.Parallel()
	c := probing(t)
	shared := filepath.Join(c.dir, "shared")
	if err := os.Mkdir(shared, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil { // for the user of the pod
		t.Fatal(err)
	}
	c.deploy("volumes", map[string]string{
		"site.yaml":   site("old"),
		"secret.yaml": fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {token: %s}\n", theSecret),
		"v.yaml": storing("v", fmt.Sprintf(`{name: site, configMap: {name: site}}, {name: key, secret: {secretName: key, defaultMode: 256}},
    {name: all, projected: {sources: [{configMap: {name: site, items: [{key: page, path: deep/page}]}}, {downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}},
    {name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: host, hostPath: {path: %q, type: Directory}}`, shared),
			`{name: site, mountPath: /site}, {name: site, mountPath: /page, subPath: page}, {name: key, mountPath: /key}, {name: all, mountPath: /all}, {name: disk, mountPath: /disk},
      {name: memory, mountPath: /memory}, {name: host, mountPath: /host}, {name: disk, mountPath: /part, subPathExpr: of-$(NAME)}`),
	})
	before := c.lives("app=v", 1)
	shows := func(path, want string) {
		t.Helper()
		becomes(t, path, want, func() (string, error) { return c.inside("v", "/read?path="+path) })
	}
	put := func(path string, n int) error {
		_, err := c.inside("v", fmt.Sprintf("/write?path=%s&n=%d", path, n))
		return err
	}
	for path, want := range map[string]string{"/site/page": "old", "/site/other": "same", "/page": "old", "/key/token": theSecret, "/all/deep/page": "old", "/all/labels": `app="v"`} {
		shows(path, want)
	}
	for _, path := range []string{"/disk/a", "/memory/a", "/host/a", "/part/b"} {
		if err := put(path, 10); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	shows("/disk/of-v/b", strings.Repeat("\x00", 10))
	if err := put("/memory/big", 2<<20); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("2 MiB into 1 MiB of memory: %v", err)
	}
	for _, path := range []string{"/site/new", "/key/token", "/page"} {
		if err := put(path, 1); err == nil || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s was written: %v", path, err)
		}
	}
	table, err := c.inside("v", "/read?path=/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(table) {
		if strings.Contains(line, " /key ") && !strings.Contains(line, " - tmpfs ") {
			t.Errorf("the secret is not in memory: %s", line)
		}
	}

	// A push changes what the running container reads. The agent was killed before.
	ip := c.pods("app=v")[0].Status.PodIP
	c.end(syscall.SIGKILL)
	becomes(t, "the page without an agent", "old", func() (string, error) { return demand(ip, "/read?path=/site/page") })
	c.start()
	c.waitReady()
	c.deploy("new page", map[string]string{"site.yaml": site("new")})
	shows("/site/page", "new")
	shows("/all/deep/page", "new")
	shows("/page", "old") // a subPath is what it was at the start
	c.same("after a change of the ConfigMap", "app=v", before)
	c.nowhereOnDisk(theSecret)

	uid := string(c.pods("app=v")[0].UID)
	c.deploy("without", map[string]string{"v.yaml": ""})
	eventually(t, "the pod's volumes to be gone", func() error {
		left, err := filepath.Glob(filepath.Join(c.data(), "volumes", "*"))
		if err != nil || len(left) > 0 {
			return fmt.Errorf("%v, %v", left, err)
		}
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(mounts), uid) {
			return fmt.Errorf("something of it is mounted, %v", err)
		}
		return nil
	})
	if data, err := os.ReadFile(filepath.Join(shared, "a")); err != nil || len(data) != 10 {
		t.Errorf("the machine's file: %d bytes, %v", len(data), err)
	}
}

// nowhereOnDisk looks for a text in every file of the data dir.
func (c *cluster) nowhereOnDisk(text string) {
	c.t.Helper()
	err := filepath.WalkDir(c.data(), func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && d.IsDir() && d.Name() == "ns" { // namespaces, which cannot be read
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		if bytes.Contains(data, []byte(text)) {
			c.t.Errorf("a secret is in %s (R14)", path)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// What cannot be mounted is told of as in Kubernetes: a ConfigMap that is not there
// yet, a subPath that leads out of its volume, a hostPath that is not what it should be,
// an emptyDir that is too full.
func TestVolumesThatCannotBe(t *testing.T) {
	t.Parallel()
	c := probing(t)
	evil := filepath.Join(c.dir, "evil")
	if err := os.Mkdir(evil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc", filepath.Join(evil, "out")); err != nil {
		t.Fatal(err)
	}
	c.write(map[string]string{
		"late.yaml":   storing("late", "{name: site, configMap: {name: site}}", "{name: site, mountPath: /site}"),
		"escape.yaml": storing("escape", fmt.Sprintf("{name: evil, hostPath: {path: %q}}", evil), "{name: evil, mountPath: /evil, subPath: out/ssl}"),
		"file.yaml":   storing("file", fmt.Sprintf("{name: evil, hostPath: {path: %q, type: File}}", evil), "{name: evil, mountPath: /evil}"),
		"full.yaml":   storing("full", "{name: disk, emptyDir: {sizeLimit: 1Mi}}", "{name: disk, mountPath: /disk}"),
	})
	c.commit("four pods")
	pushed := c.hold()
	for name, want := range map[string][2]string{
		"late":   {"ContainerCreating", `FailedMount MountVolume.SetUp failed for volume "site" : configmap "site" not found`},
		"escape": {"CreateContainerConfigError failed to prepare subPath for volumeMount \"evil\" of container \"main\"", "leads out of the volume"},
		"file":   {"ContainerCreating", "is not a file"},
	} {
		eventually(t, "the word about "+name, func() error {
			if _, err := c.tryKubectl("get", "pod", name); err != nil {
				return err
			}
			reason, events := c.waiting(name)
			if !strings.HasPrefix(reason, want[0]) || !strings.Contains(events, want[1]) {
				return fmt.Errorf("it waits for %q, events:\n%s", reason, events)
			}
			return nil
		})
	}
	eventually(t, "the disk to be filled", func() error {
		_, err := c.inside("full", "/write?path=/disk/big&n=2000000")
		return err
	})
	eventually(t, "the pod to be evicted", func() error {
		s := get[corev1.Pod](c, "pod", "full").Status
		if s.Phase != corev1.PodFailed || s.Reason != "Evicted" || s.Message != `Usage of EmptyDir volume "disk" exceeds the limit "1Mi". ` {
			return fmt.Errorf("%s %s %q", s.Phase, s.Reason, s.Message)
		}
		return nil
	})
	c.write(map[string]string{"site.yaml": site("at last"), "escape.yaml": "", "file.yaml": "", "full.yaml": ""})
	c.commit("what was missing")
	again := c.hold()
	becomes(t, "the late page", "at last", func() (string, error) { return c.inside("late", "/read?path=/site/page") })
	t.Log(pushed(), again())
}
