package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultDataDir is where everything that must survive lives.
const defaultDataDir = "/var/lib/headway"

// dataDir is the layout of a data directory: every path that more than one part
// of the program must agree on.
type dataDir string

func (d dataDir) path(name ...string) string {
	return filepath.Join(append([]string{string(d)}, name...)...)
}

func (d dataDir) kubeconfig() string  { return d.path("kubeconfig") } // admin, 0600
func (d dataDir) remote() string      { return d.path("remote") }     // one line: the push URL, 0600
func (d dataDir) sealKey() string     { return d.path("seal.key") }   // seals Secrets in the store, 0600
func (d dataDir) pushToken() string   { return d.path("push.token") } // 0600
func (d dataDir) name() string        { return d.path("cluster.name") }
func (d dataDir) etcd() string        { return d.path("etcd") } // the store
func (d dataDir) repository() string  { return d.path("git", "main.git") }
func (d dataDir) forge() string       { return d.path("git", "forge") } // clone of the forge's repository
func (d dataDir) credentials() string { return d.path("credentials") }  // of further sources, a folder each
func (d dataDir) agent() string       { return d.path("agent") }        // checkpoint of the node
func (d dataDir) node() string        { return d.path("node") }         // pods' files and logs
func (d dataDir) volumes() string     { return d.path("volumes") }      // emptyDirs of pods
func (d dataDir) persistent() string  { return d.path("persistent") }   // volumes that outlive their pods
func (d dataDir) made() string        { return d.path("made") }         // names of the persistent volumes that were made here
func (d dataDir) keeper() string      { return d.path("keeper") }       // state and socket of the keeper
func (d dataDir) engine() string      { return d.path("containerd") }   // of a containerd that we start
func (d dataDir) network() string     { return d.path("network") }
func (d dataDir) dnsAddress() string  { return d.path("dns.address") } // of the cluster's names on this machine
func (d dataDir) images() string      { return d.path("images") }      // OCI archives to import
func (d dataDir) registries() string  { return d.path("registries") }  // containerd's hosts.toml folders
func (d dataDir) seccomp() string     { return d.path("seccomp") }     // profiles that pods name
func (d dataDir) programs() string    { return d.path("bin") }         // the keeper, unpacked
func (d dataDir) nodeKey() string     { return d.path("node.key") }    // of an agent that joined
func (d dataDir) nodeCert() string    { return d.path("node.crt") }
func (d dataDir) authority() string   { return d.path("ca.crt") }

func (d dataDir) identity() string { return d.path("server.id") }
func (d dataDir) lock() string     { return d.path("lock") }

// owns says whether an entry of the data dir, by its name, is of headway's making, or
// is there for it.
func (d dataDir) owns(entry string) bool {
	return slices.ContainsFunc([]string{
		d.kubeconfig(), d.remote(), d.sealKey(), d.pushToken(), d.name(), d.identity(), d.etcd(), d.path("git"), d.credentials(),
		d.agent(), d.node(), d.volumes(), d.persistent(), d.made(), d.keeper(), d.engine(), d.network(), d.dnsAddress(), d.images(), d.registries(), d.seccomp(), d.programs(),
		d.nodeKey(), d.nodeCert(), d.authority(), d.lock(),
	}, func(path string) bool {
		name := filepath.Base(path)
		return entry == name || strings.HasPrefix(entry, "."+name+"-") // of a replaceFile that was cut off
	})
}

// check refuses a folder that no headway has run with: it is somebody's.
func (d dataDir) check() error {
	if _, err := os.Stat(string(d)); err != nil {
		return err
	}
	_, err := os.Stat(d.lock())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is not the data dir of a headway, since it has no file %s: name the right one with --data-dir", string(d), filepath.Base(d.lock()))
	}
	return err
}

// remove takes away what is headway's of the data dir, and that itself when nothing
// else is in it. It returns what is. Data of persistent volumes stays. Cut off, it can be
// done again: the lock, by which a data dir is told, goes last.
func (d dataDir) remove() (left []string, err error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, err
	}
	lock := filepath.Base(d.lock())
	kept, err := d.hasVolumes()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		switch {
		case kept && e.Name() == filepath.Base(d.persistent()):
		case !d.owns(e.Name()):
			left = append(left, e.Name())
		case e.Name() != lock:
			if err := os.RemoveAll(d.path(e.Name())); err != nil {
				return nil, err
			}
		}
	}
	if err := os.Remove(d.lock()); err != nil || len(left) > 0 || kept {
		return left, err
	}
	return nil, os.Remove(string(d))
}

// hasVolumes says whether there is anything in the folder of persistent volumes.
func (d dataDir) hasVolumes() (bool, error) {
	entries, err := os.ReadDir(d.persistent())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}

// open makes the data directory and takes its lock, which lasts until the
// returned file is closed or the process ends.
func (d dataDir) open() (*os.File, error) {
	if err := os.MkdirAll(string(d), 0o711); err != nil {
		return nil, fmt.Errorf("make the data dir: %w", err)
	}
	lock, err := os.OpenFile(d.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data dir: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("another headway runs on %s: end it, or give this one --data-dir and --listen of its own", string(d))
		}
		return nil, fmt.Errorf("lock the data dir: %w", err)
	}
	return lock, nil
}

// secret returns the content of a file, which it makes with n random bytes on the
// first call.
func secret(path string, n int) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err == nil {
		if len(data) != n {
			return nil, fmt.Errorf("%s has %d bytes instead of %d: it is damaged; restore it from a backup", path, len(data), n)
		}
		return data, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data = make([]byte, n)
	if _, err := rand.Read(data); err != nil {
		return nil, err
	}
	return data, replaceFile(path, data, 0o600)
}

// replaceFile writes a file so that a reader, or a crash, finds the old or the
// new one and nothing in between.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	err = temp.Chmod(mode)
	if err == nil {
		_, err = temp.Write(data)
	}
	if err == nil {
		err = temp.Sync()
	}
	if cerr := temp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// readLine reads a file of one line.
func readLine(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}
