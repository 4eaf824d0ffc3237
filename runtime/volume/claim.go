package volume

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/api"
)

// claimed is what a claim's volume has to be, by the word of both.
func (from Source) claimed(w *Volume, pod *corev1.Pod, v *corev1.Volume) error {
	name := api.ClaimName(pod, v)
	claim := from.Claim(name)
	switch {
	case claim == nil:
		return missingf("persistentvolumeclaim %q not found", name)
	case v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
		return fmt.Errorf("PVC %q was not created for pod %q (pod is not owner)", name, pod.Name)
	case claim.Spec.VolumeName == "":
		return missingf("persistentvolumeclaim %q is not bound to a volume yet", name)
	}
	pv := from.PersistentVolume(claim.Spec.VolumeName)
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != claim.UID || pv.Spec.ClaimRef.Namespace != claim.Namespace || pv.Spec.ClaimRef.Name != name {
		return missingf("persistentvolume %q of persistentvolumeclaim %q is not there: it is not bound to the claim yet, or its node affinity leaves this node out", claim.Spec.VolumeName, name)
	}
	if mode := pv.Spec.VolumeMode; mode != nil && *mode != corev1.PersistentVolumeFilesystem {
		return fmt.Errorf("persistentvolume %q has volumeMode %s: this version of Headway mounts file systems only", pv.Name, *mode)
	}
	if err := from.source(w, pv); err != nil {
		return fmt.Errorf("persistentvolume %q: %w", pv.Name, err)
	}
	return nil
}

func (from Source) source(w *Volume, pv *corev1.PersistentVolume) error {
	s := &pv.Spec.PersistentVolumeSource
	switch {
	case pv.Annotations[api.ProvisionedByAnnotation] == api.LocalProvisioner:
		if node := api.LocalVolumeNode(pv); node != from.Node {
			return fmt.Errorf("its data is on node %q, this is node %q", node, from.Node)
		}
		if s.Local == nil {
			return errors.New("a volume of " + api.LocalProvisioner + " must have the source local")
		}
		if here := filepath.Join(from.Dir, pv.Name); from.Dir == "" || filepath.Clean(s.Local.Path) != here {
			return fmt.Errorf("its data is in %s, but this node has its volumes in %q: move them back, or start the agent with the data dir that it had", s.Local.Path, from.Dir)
		}
		w.Kind, w.Persistent = Local, pv.Name
	case s.Local != nil:
		w.Kind, w.Path = Local, s.Local.Path
	case s.HostPath != nil:
		w.Kind, w.Path, w.Recursive = Local, s.HostPath.Path, true
		if s.HostPath.Type != nil {
			w.Type = *s.HostPath.Type
		}
	case s.NFS != nil:
		w.Kind, w.Server, w.Path = NFS, s.NFS.Server, s.NFS.Path
		w.ReadOnly = w.ReadOnly || s.NFS.ReadOnly
		w.Options = slices.Clone(pv.Spec.MountOptions)
	default:
		return fmt.Errorf("a volume of type %s is not mounted by this version of Headway", sourceName(s))
	}
	if len(pv.Spec.MountOptions) > 0 && w.Kind != NFS {
		return errors.New("its mountOptions mean nothing: a folder of the machine is not mounted with options")
	}
	return nil
}

// sourceName is the field that a volume's source stands in.
func sourceName(s *corev1.PersistentVolumeSource) string {
	raw, err := json.Marshal(s)
	fields := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return "unknown"
	}
	for name := range fields { // exactly one
		return name
	}
	return "none"
}

// grouped says whether the files of a volume become those of the pod's fsGroup. Those
// of a hostPath and of an NFS server do not, as in Kubernetes.
func (w *Volume) grouped() bool {
	switch w.Kind {
	case Host, NFS, Mounted:
		return false
	case Local:
		return !w.Recursive && !w.ReadOnly
	}
	return true
}
