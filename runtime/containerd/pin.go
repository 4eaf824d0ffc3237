package containerd

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// namespace is a kind of them, by its name in /proc.
type namespace struct {
	kind string
	flag int
}

// pinned are the namespaces that a sandbox can have.
func pinned() []namespace {
	return []namespace{{"net", unix.CLONE_NEWNET}, {"ipc", unix.CLONE_NEWIPC}, {"uts", unix.CLONE_NEWUTS}}
}

// own are those of them that the pod's sandbox has; the others are the node's. As in
// Kubernetes the host name goes with the network.
func own(pod *corev1.Pod) []namespace {
	return slices.DeleteFunc(pinned(), func(n namespace) bool {
		return pod.Spec.HostNetwork && n.kind != "ipc" || pod.Spec.HostIPC && n.kind == "ipc"
	})
}

// notOwn are the kinds of namespaces that a pod has of the node.
func notOwn(pod *corev1.Pod) []string {
	var out []string
	mine := own(pod)
	for _, n := range pinned() {
		if !slices.Contains(mine, n) {
			out = append(out, n.kind)
		}
	}
	return out
}

// sysctls are the kernel parameters of the pod's own namespaces: what it asks for,
// and that a port below 1024 needs no capability, as Kubernetes' engines have it.
func sysctls(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	if !pod.Spec.HostNetwork {
		out["net.ipv4.ip_unprivileged_port_start"] = "0"
	}
	if s := pod.Spec.SecurityContext; s != nil {
		for _, p := range s.Sysctls {
			out[strings.ReplaceAll(p.Name, "/", ".")] = p.Value
		}
	}
	return out
}

// pin makes namespaces of a sandbox and keeps them by bind mounts in dir. Those that
// are there stay. A new UTS namespace gets the hostname, a new network or IPC
// namespace the kernel parameters that are its own.
func pin(dir string, own []namespace, hostname string, sysctls map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory of namespaces: %w", err)
	}
	missing := 0
	var kinds []string
	for _, n := range own {
		live, err := isPinned(filepath.Join(dir, n.kind))
		if err != nil {
			return err
		}
		if !live {
			missing |= n.flag
			kinds = append(kinds, n.kind)
		}
	}
	if missing == 0 {
		return nil
	}
	return onOwnThread(func() error { return pinHere(dir, hostname, missing, kinds, sysctls) })
}

// onOwnThread runs f on a thread that ends with it, so that nothing else ever
// runs in the namespaces that f enters. Go cannot end the process's first
// thread, and /proc/self stands for that one, so it must be another.
func onOwnThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			done <- onOwnThread(f) // elsewhere, since we hold this one
			runtime.UnlockOSThread()
			return
		}
		done <- f()
	}()
	return <-done
}

func pinHere(dir, hostname string, flags int, kinds []string, sysctls map[string]string) error {
	if err := unix.Unshare(flags); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	if flags&unix.CLONE_NEWUTS != 0 {
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("set hostname of pod: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		flag := unix.CLONE_NEWIPC
		if strings.HasPrefix(name, "net.") {
			flag = unix.CLONE_NEWNET
		}
		if flags&flag == 0 {
			continue // set when the namespace was made
		}
		// The files below show the namespaces of the thread that opens them.
		path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if err := os.WriteFile(path, []byte(sysctls[name]), 0); err != nil {
			return fmt.Errorf("set kernel parameter %s of pod: %w", name, err)
		}
	}
	for _, kind := range kinds {
		path := filepath.Join(dir, kind)
		f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o400)
		if err != nil {
			return fmt.Errorf("keep namespace: %w", err)
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("keep namespace: %w", err)
		}
		src := fmt.Sprintf("/proc/self/task/%d/ns/%s", unix.Gettid(), kind)
		if err := unix.Mount(src, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep namespace %s: %w", path, err)
		}
	}
	return nil
}

// isPinned reports whether a path holds a namespace. After a reboot the file is
// there and holds none.
func isPinned(path string) (bool, error) {
	var s unix.Statfs_t
	err := unix.Statfs(path, &s)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect namespace %s: %w", path, err)
	}
	return s.Type == unix.NSFS_MAGIC, nil
}

// mountShm mounts the pod's /dev/shm where there is none yet.
func mountShm(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make /dev/shm of pod: %w", err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return fmt.Errorf("inspect /dev/shm of pod: %w", err)
	}
	if s.Type == unix.TMPFS_MAGIC {
		return nil
	}
	err := unix.Mount("shm", path, "tmpfs", unix.MS_NOEXEC|unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=65536k")
	if err != nil {
		return fmt.Errorf("mount /dev/shm of pod: %w", err)
	}
	return nil
}

// unmount takes away every mount on path, however many an interrupted call made.
func unmount(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT): // no mount there
			return nil
		default:
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}
