package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func claim(name, class string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: %s}\nspec:\n  accessModes: [ReadWriteOnce]\n  storageClassName: %s\n  resources: {requests: {storage: 1Mi}}\n", name, class)
}

// claiming is a pod that serves what a claim's volume holds.
func claiming(name string) string {
	return storing(name, fmt.Sprintf("{name: data, persistentVolumeClaim: {claimName: %s}}", name), "{name: data, mountPath: /data}")
}

// keeping is a StatefulSet whose pod has a volume of its own.
const keeping = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 1000, fsGroup: 4242, fsGroupChangePolicy: OnRootMismatch}
      containers:
      - name: db
        image: %s
        args: [serve]
        volumeMounts: [{name: data, mountPath: /data}, {name: data, mountPath: /part, subPath: a/b}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// What a pod writes into its volume is there for the next one, which follows its data to
// its node, also when the agent there is killed in between; it goes with the claim, and
// stays with the policy Retain. A declared hostPath volume shows what is on the machine.
func TestPersistentVolumes(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	c.args = []string{"server", "--data-dir", c.data(), "--listen", c.listen}
	c.start()
	eventually(t, "the server to answer", func() error {
		_, err := c.tryKubectl("get", "nodes")
		return err
	})
	nodes := map[string]*cluster{"one": c.join("one"), "two": c.join("two")}
	host := filepath.Join(c.dir, "host")
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(host, "there"), []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	static := fmt.Sprintf("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: machine}\nspec:\n  capacity: {storage: 1Mi}\n  accessModes: [ReadWriteOnce]\n  storageClassName: machine\n  hostPath: {path: %q, type: Directory}\n", host)
	retain := "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: kept}\nprovisioner: headway.dev/local\nreclaimPolicy: Retain\nvolumeBindingMode: WaitForFirstConsumer\n"
	c.deploy("volumes", map[string]string{
		"db.yaml":       fmt.Sprintf(keeping, probeName),
		"machine.yaml":  static + "---\n" + claim("machine", "machine") + "---\n" + claiming("machine"),
		"kept.yaml":     retain + "---\n" + claiming("kept"),
		"keptdata.yaml": claim("kept", "kept"),
		"mine.yaml":     claiming("mine"),
		"minedata.yaml": claim("mine", "local"),
	})
	becomes(t, "the machine's file", "before", func() (string, error) { return c.inside("machine", "/read?path=/data/there") })

	folder := func(claim string) (node *cluster, volume, path string) {
		t.Helper()
		pvc := get[corev1.PersistentVolumeClaim](c, "pvc", claim)
		volume = pvc.Spec.VolumeName
		pv := get[corev1.PersistentVolume](c, "pv", volume)
		for name, n := range nodes {
			if strings.HasPrefix(pv.Spec.Local.Path, n.data()+"/") {
				if on := pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchFields[0].Values[0]; on != name {
					t.Fatalf("volume %s is in %s and on %s", volume, pv.Spec.Local.Path, on)
				}
				return n, volume, pv.Spec.Local.Path
			}
		}
		t.Fatalf("volume %s is in %s", volume, pv.Spec.Local.Path)
		return nil, "", ""
	}
	for app, path := range map[string]string{"db": "/data/dear", "kept": "/data/dear", "mine": "/data/dear"} {
		if _, err := c.inside(app, "/write?n=10&path="+path); err != nil {
			t.Fatalf("%s: %v", app, err)
		}
	}
	if _, err := c.inside("db", "/write?n=3&path=/part/deep"); err != nil {
		t.Error(err)
	}
	node, volume, path := folder("data-db-0")
	info, err := os.Stat(filepath.Join(path, "dear"))
	if err != nil || info.Size() != 10 || info.Sys().(*syscall.Stat_t).Gid != 4242 {
		t.Fatalf("on the disk: %v, %v", info, err)
	}

	// The pod goes while its agent is dead, and comes back to its data.
	before := get[corev1.Pod](c, "pod", "db-0")
	node.end(syscall.SIGKILL)
	c.kubectl("delete", "pod", "db-0", "--wait=false")
	node.start()
	eventually(t, "the next pod", func() error {
		p := get[corev1.Pod](c, "pod", "db-0")
		if p.UID == before.UID || p.Spec.NodeName != before.Spec.NodeName || p.Status.PodIP == "" {
			return fmt.Errorf("pod %s on %q, before %s on %s", p.UID, p.Spec.NodeName, before.UID, before.Spec.NodeName)
		}
		for file, want := range map[string]string{"/data/dear": strings.Repeat("\x00", 10), "/data/a/b/deep": "\x00\x00\x00", "/part/deep": "\x00\x00\x00"} {
			if got, err := demand(p.Status.PodIP, "/read?path="+file); err != nil || got != want {
				return fmt.Errorf("%s is %q, %v", file, got, err)
			}
		}
		return nil
	})

	// Claims that are deleted: by hand, since a StatefulSet's are not declared, and by commits.
	_, kept, keptPath := folder("kept")
	_, mine, minePath := folder("mine")
	c.deploy("no pods\n\nAllow-Delete: all\nAllow-Delete: PersistentVolumeClaim/default/kept\nAllow-Delete: PersistentVolumeClaim/default/mine", map[string]string{"db.yaml": "", "kept.yaml": retain, "mine.yaml": "", "minedata.yaml": "", "keptdata.yaml": ""})
	if _, err := os.Stat(filepath.Join(path, "dear")); err != nil {
		t.Errorf("a StatefulSet that is deleted leaves its data: %v", err)
	}
	c.kubectl("delete", "pvc", "data-db-0", "--timeout="+patience.String())
	for name, path := range map[string]string{volume: path, mine: minePath} {
		eventually(t, "volume "+name+" to be gone", func() error {
			if _, err := os.Lstat(path); !os.IsNotExist(err) {
				return fmt.Errorf("%s: %v", path, err)
			}
			if out, err := c.tryKubectl("get", "pv", name, "--ignore-not-found", "-o", "name"); err != nil || out != "" {
				return fmt.Errorf("%s, %v", out, err)
			}
			return nil
		})
	}
	eventually(t, "the volume to be released", func() error {
		if pv := get[corev1.PersistentVolume](c, "pv", kept); pv.Status.Phase != corev1.VolumeReleased {
			return fmt.Errorf("it is %s", pv.Status.Phase)
		}
		return nil
	})
	if data, err := os.ReadFile(filepath.Join(keptPath, "dear")); err != nil || len(data) != 10 {
		t.Errorf("what was to be kept: %d bytes, %v", len(data), err)
	}
	if data, err := os.ReadFile(filepath.Join(host, "there")); err != nil || string(data) != "before" {
		t.Errorf("the machine's file: %q, %v", data, err)
	}

	// Reset keeps the data of volumes, and takes them when told to.
	for name, n := range nodes {
		if !strings.HasPrefix(keptPath, n.data()+"/") {
			continue
		}
		n.end(syscall.SIGTERM)
		out, err := n.headway("reset", "--yes", "--containerd", n.engine)
		if err != nil {
			t.Fatalf("reset of %s: %v", name, err)
		}
		contains(t, "reset", out, "Kept: the data of persistent volumes, in "+filepath.Dir(keptPath))
		if _, err := os.Stat(filepath.Join(keptPath, "dear")); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(n.data()); err != nil {
			t.Fatal(err)
		}
	}
}
