package volume

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
)

// bound is a claim c with its volume pv, as change has made them.
func bound(change func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)) Source {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "u1"}}
	claim.Spec.VolumeName = "pv"
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "c", UID: "u1"}
	pv.Spec.Local = &corev1.LocalVolumeSource{Path: "/mnt/disk"}
	change(claim, pv)
	return Source{
		Node: "n1", Dir: "/persistent",
		Claim: func(name string) *corev1.PersistentVolumeClaim {
			if name == claim.Name {
				return claim
			}
			return nil
		},
		PersistentVolume: func(name string) *corev1.PersistentVolume {
			if name == pv.Name {
				return pv
			}
			return nil
		},
	}
}

func claimPod(readOnly bool) *corev1.Pod {
	group, policy := int64(99), corev1.FSGroupChangeOnRootMismatch
	p := podWith(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: readOnly}})
	p.Namespace, p.UID = "default", "p1"
	p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: &policy}
	return p
}

func provisioned(pv *corev1.PersistentVolume, node, path string) {
	pv.Annotations = map[string]string{api.ProvisionedByAnnotation: api.LocalProvisioner}
	pv.Spec.NodeAffinity = api.LocalVolumeAffinity(node)
	pv.Spec.Local.Path = path
}

type change = func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume)

func TestWantedOfClaims(t *testing.T) {
	nfs := func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/x", ReadOnly: true}}
		pv.Spec.MountOptions = []string{"vers=4.2"}
	}
	file := corev1.HostPathFile
	host := func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/h", Type: &file}}
	}
	ours := func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
		provisioned(pv, "n1", "/persistent/pv")
	}
	group := int64(99)
	for what, tc := range map[string]struct {
		change   change
		readOnly bool
		want     Volume
	}{
		"static":    {func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {}, false, Volume{Kind: Local, Path: "/mnt/disk", Group: &group, Mismatch: true}},
		"read-only": {func(*corev1.PersistentVolumeClaim, *corev1.PersistentVolume) {}, true, Volume{Kind: Local, Path: "/mnt/disk", ReadOnly: true}},
		"ours":      {ours, false, Volume{Kind: Local, Persistent: "pv", Group: &group, Mismatch: true}},
		"hostPath":  {host, false, Volume{Kind: Local, Path: "/h", Type: file, Recursive: true}},
		"nfs":       {nfs, false, Volume{Kind: NFS, Server: "s", Path: "/x", Options: []string{"vers=4.2"}, ReadOnly: true}},
	} {
		got, err := Wanted(claimPod(tc.readOnly), bound(tc.change))
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		w := got[0]
		if w.Kind != tc.want.Kind || w.Path != tc.want.Path || w.Persistent != tc.want.Persistent || w.Type != tc.want.Type || w.Recursive != tc.want.Recursive ||
			w.ReadOnly != tc.want.ReadOnly || w.Mismatch != tc.want.Mismatch || w.Server != tc.want.Server || !slices.Equal(w.Options, tc.want.Options) || (w.Group == nil) != (tc.want.Group == nil) {
			t.Errorf("%s: %+v", what, w)
		}
		places, err := Places(claimPod(tc.readOnly))
		if err != nil || places[0].Kind != Mounted || places[0].ReadOnly != tc.readOnly {
			t.Errorf("%s: %+v, %v", what, places, err)
		}
	}
}

func TestWantedOfClaimsErrors(t *testing.T) {
	for what, tc := range map[string]struct {
		change  change
		want    string
		missing bool
	}{
		"no claim":      {func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Name = "other" }, `persistentvolumeclaim "c" not found`, true},
		"not bound":     {func(c *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) { c.Spec.VolumeName = "" }, `persistentvolumeclaim "c" is not bound to a volume yet`, true},
		"no volume":     {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { pv.Name = "other" }, `persistentvolume "pv" of persistentvolumeclaim "c" is not there`, true},
		"not its claim": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.UID = "u2" }, "is not there", true},
		"other space":   {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { pv.Spec.ClaimRef.Namespace = "x" }, "is not there", true},
		"of no claim":   {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }, "is not there", true},
		"block": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			mode := corev1.PersistentVolumeBlock
			pv.Spec.VolumeMode = &mode
		}, "volumeMode Block", false},
		"source": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"}}
		}, "a volume of type csi is not mounted", false},
		"options": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			pv.Spec.MountOptions = []string{"ro"}
		}, "mountOptions", false},
		"other node": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			provisioned(pv, "n2", "/persistent/pv")
		}, `its data is on node "n2", this is node "n1"`, false},
		"other place": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			provisioned(pv, "n1", "/elsewhere/pv")
		}, "its data is in /elsewhere/pv", false},
		"another's": {func(_ *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			provisioned(pv, "n1", "/persistent/pv2")
		}, "its data is in", false},
	} {
		_, err := Wanted(claimPod(false), bound(tc.change))
		var e *Error
		if !errors.As(err, &e) || e.Missing != tc.missing || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The claim of a pod's own volume must be the pod's.
func TestWantedOfOwnClaims(t *testing.T) {
	p := claimPod(false)
	p.Name = "p"
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	from := func(owner types.UID) Source {
		return bound(func(c *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) {
			c.Name, pv.Spec.ClaimRef.Name = "p-v", "p-v"
			c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: owner, Controller: new(true)}}
		})
	}
	if got, err := Wanted(p, from("p1")); err != nil || got[0].Kind != Local {
		t.Error(got, err)
	}
	if _, err := Wanted(p, from("p2")); err == nil || !strings.Contains(err.Error(), `PVC "p-v" was not created for pod "p"`) {
		t.Error(err)
	}
}
