package volume

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func isHuge(m corev1.StorageMedium) bool {
	return m == corev1.StorageMediumHugePages || strings.HasPrefix(string(m), string(corev1.StorageMediumHugePagesPrefix))
}

// huge says of which size the pages of an emptyDir are: the medium names it, or else the
// one that the pod's containers ask for.
func huge(w *Volume, pod *corev1.Pod, s *corev1.EmptyDirVolumeSource) error {
	sizes := map[string]bool{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests {
				if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
					sizes[size] = true
				}
			}
		}
	}
	size, named := strings.CutPrefix(string(s.Medium), string(corev1.StorageMediumHugePagesPrefix))
	switch {
	case named && !sizes[size]:
		return fmt.Errorf("medium %s for a volume of a pod that requests no hugepages-%s", s.Medium, size)
	case named:
	case len(sizes) == 0:
		return errors.New("medium HugePages for a volume of a pod that requests no huge pages")
	case len(sizes) > 1:
		return errors.New("medium HugePages for a volume of a pod that requests pages of several sizes: name one, as in HugePages-2Mi")
	default:
		for size = range sizes {
		}
	}
	q, err := resource.ParseQuantity(size)
	if err != nil || q.Sign() <= 0 {
		return fmt.Errorf("medium %s: %q is no size of a page", s.Medium, size)
	}
	if w.Page = q.Value(); s.SizeLimit != nil {
		w.Size = s.SizeLimit.Value()
	}
	return nil
}

// makeHuge mounts a folder of huge pages where there is none yet.
func makeHuge(path string, w Volume) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	mounted, err := isMount(path)
	if mounted || err != nil {
		return err
	}
	if err := unix.Mount("nodev", path, "hugetlbfs", unix.MS_NODEV|unix.MS_NOSUID, hugeOptions(w)); err != nil {
		return fmt.Errorf("mount pages of %d bytes: %w", w.Page, err)
	}
	return nil
}

func hugeOptions(w Volume) string {
	options := "pagesize=" + strconv.FormatInt(w.Page, 10) + ",mode=0777"
	if w.Group != nil {
		options = "pagesize=" + strconv.FormatInt(w.Page, 10) + ",mode=02777,gid=" + strconv.FormatInt(*w.Group, 10)
	}
	if w.Size > 0 {
		options += ",size=" + strconv.FormatInt(w.Size, 10)
	}
	return options
}
