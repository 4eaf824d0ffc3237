package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// checkpoint keeps on disk what the agent was last told to run, so that a
// restarted agent keeps it running with no server to ask (R9): one file per
// object, written beside and renamed, with a checksum. Secrets go to a tmpfs
// only. Writing follows the pods' transitions and never holds one up: a pod whose
// file was not yet written at a crash runs on, and is known again from the server.
// One thing waits for it: the report that a pod has ended, after which another may
// take its name elsewhere (R10). An agent that came back to an older file would
// start it once more.
type checkpoint struct {
	dir, secrets string // secrets "": none are kept
	log          *slog.Logger
	wake         chan struct{}
	urgent       chan struct{} // somebody waits for what is pending
	wrote        func()        // called after each round of writing; nil: nobody asks

	mu      sync.Mutex
	pending map[string]marshaler // path to what to write; nil: remove
	writes  map[string]marshaler // what was pending and is being written
	all     bool                 // pending, or written, is every Service and slice that there is

	whole   bool // the disk says so, too; under writing
	writing sync.Mutex
}

type marshaler interface{ Marshal() ([]byte, error) }

type saved struct {
	pods       []*corev1.Pod
	configMaps []*corev1.ConfigMap
	secrets    []*corev1.Secret
	tokens     []*corev1.Secret
	claims     []*corev1.PersistentVolumeClaim
	volumes    []*corev1.PersistentVolume
	services   []*corev1.Service
	slices     []*discoveryv1.EndpointSlice
	all        bool // every Service and slice that there was; a name of none does not exist
}

const (
	checkpointHead = "headway checkpoint 1 "
	maxCheckpoint  = 4 << 20
	checkpointWait = 500 * time.Millisecond
	tokenFolder    = "tokens" // beside the Secrets
)

func openCheckpoint(dir, secrets string, log *slog.Logger) (*checkpoint, error) {
	k := &checkpoint{dir: dir, secrets: secrets, log: log, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1), pending: map[string]marshaler{}}
	for _, d := range []string{"pods", "configmaps", "services", "endpointslices", "persistentvolumeclaims", "persistentvolumes"} {
		d = filepath.Join(dir, d)
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the checkpoint's folder: %w", err)
		}
	}
	if secrets == "" {
		return k, nil
	}
	if err := os.MkdirAll(secrets, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for secrets: %w", err)
	}
	inMemory, err := isTmpfs(secrets)
	if err != nil {
		return nil, fmt.Errorf("ask for the file system of %s: %w", secrets, err)
	}
	if !inMemory {
		log.Warn("folder for secrets is not on a tmpfs: no secret is kept, so after a restart of the agent without a server pods that need one are not restarted", "folder", secrets)
		k.secrets = ""
		return k, nil
	}
	if err := os.MkdirAll(filepath.Join(secrets, tokenFolder), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for tokens: %w", err)
	}
	return k, nil
}

// load reads what is there. A file that cannot be read back is set aside and
// told of; it stops nothing.
func (k *checkpoint) load() (saved, error) {
	var out saved
	var err error
	if out.pods, err = loadAll(k, filepath.Join(k.dir, "pods"), func() *corev1.Pod { return &corev1.Pod{} }); err != nil {
		return out, err
	}
	if out.configMaps, err = loadAll(k, filepath.Join(k.dir, "configmaps"), func() *corev1.ConfigMap { return &corev1.ConfigMap{} }); err != nil {
		return out, err
	}
	if out.claims, err = loadAll(k, k.claims(), func() *corev1.PersistentVolumeClaim { return &corev1.PersistentVolumeClaim{} }); err != nil {
		return out, err
	}
	if out.volumes, err = loadAll(k, k.volumes(), func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} }); err != nil {
		return out, err
	}
	if out.services, err = loadAll(k, k.services(), func() *corev1.Service { return &corev1.Service{} }); err != nil {
		return out, err
	}
	if out.slices, err = loadAll(k, k.slices(), func() *discoveryv1.EndpointSlice { return &discoveryv1.EndpointSlice{} }); err != nil {
		return out, err
	}
	if out.all, err = k.loadWhole(); err != nil {
		return out, err
	}
	if k.secrets == "" {
		return out, nil
	}
	if out.secrets, err = loadAll(k, k.secrets, func() *corev1.Secret { return &corev1.Secret{} }); err != nil {
		return out, err
	}
	out.tokens, err = loadAll(k, filepath.Join(k.secrets, tokenFolder), func() *corev1.Secret { return &corev1.Secret{} })
	return out, err
}

type readable interface {
	metav1.Object
	Unmarshal([]byte) error
}

func loadAll[T readable](k *checkpoint, dir string, fresh func() T) ([]T, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the checkpoint: %w", err)
	}
	var out []T
	for _, f := range files {
		path := filepath.Join(dir, f.Name())
		if strings.HasSuffix(f.Name(), ".damaged") || f.IsDir() {
			continue
		}
		if strings.HasSuffix(f.Name(), ".new") { // of a write that a crash cut short
			if err := os.Remove(path); err != nil {
				return nil, fmt.Errorf("clean the checkpoint: %w", err)
			}
			continue
		}
		obj := fresh()
		if err := readCheckpoint(path, obj); err != nil {
			k.log.Error("checkpoint file is damaged and set aside", "file", path, "error", err)
			if err := os.Rename(path, path+".damaged"); err != nil {
				return nil, fmt.Errorf("set a damaged checkpoint file aside: %w", err)
			}
			continue
		}
		out = append(out, obj)
	}
	return out, nil
}

func readCheckpoint(path string, obj readable) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() > maxCheckpoint {
		return fmt.Errorf("%d bytes are more than a checkpoint has", info.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return decodeCheckpoint(raw, obj)
}

func encodeCheckpoint(obj marshaler) ([]byte, error) {
	body, err := obj.Marshal()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return append([]byte(checkpointHead+hex.EncodeToString(sum[:])+"\n"), body...), nil
}

func decodeCheckpoint(raw []byte, obj readable) error {
	head, body, ok := bytes.Cut(raw, []byte("\n"))
	if !ok {
		return errors.New("it has no head")
	}
	want, ok := strings.CutPrefix(string(head), checkpointHead)
	if !ok {
		return errors.New("its head is not that of a checkpoint of this version")
	}
	sum := sha256.Sum256(body)
	if want != hex.EncodeToString(sum[:]) {
		return errors.New("its checksum does not match")
	}
	if err := obj.Unmarshal(body); err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	if _, global := obj.(*corev1.PersistentVolume); obj.GetName() == "" || obj.GetNamespace() == "" && !global {
		return errors.New("it names no object")
	}
	return nil
}

func (k *checkpoint) savePod(pod *corev1.Pod) {
	if validFile(string(pod.UID)) {
		k.put(k.podPath(pod.UID), pod)
	}
}

func (k *checkpoint) dropPod(uid types.UID) {
	if validFile(string(uid)) {
		k.put(k.podPath(uid), nil)
	}
}

func (k *checkpoint) saveConfigMap(cm *corev1.ConfigMap) {
	k.put(k.objectPath(k.configMaps(), cm.Namespace, cm.Name), cm)
}

func (k *checkpoint) dropConfigMap(namespace, name string) {
	k.put(k.objectPath(k.configMaps(), namespace, name), nil)
}

func (k *checkpoint) saveSecret(s *corev1.Secret) {
	if k.secrets != "" {
		k.put(k.objectPath(k.secrets, s.Namespace, s.Name), s)
	}
}

func (k *checkpoint) dropSecret(namespace, name string) {
	if k.secrets != "" {
		k.put(k.objectPath(k.secrets, namespace, name), nil)
	}
}

func (k *checkpoint) saveToken(namespace string, key tokenKey, t token) {
	if k.secrets != "" {
		k.put(k.objectPath(filepath.Join(k.secrets, tokenFolder), namespace, key.name()), t.secret(namespace, key))
	}
}

func (k *checkpoint) dropTokenNamed(namespace, name string) {
	if k.secrets != "" {
		k.put(k.objectPath(filepath.Join(k.secrets, tokenFolder), namespace, name), nil)
	}
}

func (k *checkpoint) saveClaim(c *corev1.PersistentVolumeClaim) {
	k.put(k.objectPath(k.claims(), c.Namespace, c.Name), c)
}

func (k *checkpoint) dropClaim(namespace, name string) {
	k.put(k.objectPath(k.claims(), namespace, name), nil)
}

func (k *checkpoint) saveVolume(v *corev1.PersistentVolume) {
	k.put(k.objectPath(k.volumes(), "", v.Name), v)
}

func (k *checkpoint) dropVolume(name string) { k.put(k.objectPath(k.volumes(), "", name), nil) }

func (k *checkpoint) saveService(s *corev1.Service) {
	k.put(k.objectPath(k.services(), s.Namespace, s.Name), s)
}

func (k *checkpoint) dropService(namespace, name string) {
	k.put(k.objectPath(k.services(), namespace, name), nil)
}

func (k *checkpoint) saveSlice(s *discoveryv1.EndpointSlice) {
	k.put(k.objectPath(k.slices(), s.Namespace, s.Name), s)
}

func (k *checkpoint) dropSlice(namespace, name string) {
	k.put(k.objectPath(k.slices(), namespace, name), nil)
}

func (k *checkpoint) claims() string               { return filepath.Join(k.dir, "persistentvolumeclaims") }
func (k *checkpoint) volumes() string              { return filepath.Join(k.dir, "persistentvolumes") }
func (k *checkpoint) services() string             { return filepath.Join(k.dir, "services") }
func (k *checkpoint) slices() string               { return filepath.Join(k.dir, "endpointslices") }
func (k *checkpoint) configMaps() string           { return filepath.Join(k.dir, "configmaps") }
func (k *checkpoint) podPath(uid types.UID) string { return filepath.Join(k.dir, "pods", string(uid)) }

// objectPath is safe whatever a server calls an object, and short enough for any
// file system.
func (k *checkpoint) objectPath(dir, ns, name string) string {
	sum := sha256.Sum256([]byte(ns + "/" + name))
	return filepath.Join(dir, hex.EncodeToString(sum[:20]))
}

// validFile says whether a uid that came over the wire is safe as a file's name.
func validFile(uid string) bool { return len(validation.IsDNS1123Label(strings.ToLower(uid))) == 0 }

func (k *checkpoint) put(path string, obj marshaler) {
	k.mu.Lock()
	k.pending[path] = obj
	k.mu.Unlock()
	notify(k.wake)
}

// written says whether the disk has what was last kept of a pod, or that it is kept
// no more. If not, it is written at once.
func (k *checkpoint) written(uid types.UID) bool {
	path := k.podPath(uid)
	k.mu.Lock()
	defer k.mu.Unlock()
	if has(k.pending, path) || has(k.writes, path) {
		notify(k.urgent)
		return false
	}
	return true
}

// run writes what changes until ctx ends.
func (k *checkpoint) run(ctx context.Context) {
	failed := backoff{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		select { // one write for a pod that comes and comes up, out of its way
		case <-ctx.Done():
			return
		case <-k.urgent:
		case <-time.After(checkpointWait):
		}
		err := k.flush()
		if err == nil {
			failed = backoff{}
			continue
		}
		k.log.Error("checkpoint cannot be written: after a restart without a server the newest pods would not be known", "error", err)
		failed = failed.next(time.Time{}, errorFirst, errorMost)
		select {
		case <-ctx.Done():
			return
		case <-time.After(failed.Delay):
			notify(k.wake)
		}
	}
}

// flush writes all that is pending. What cannot be written stays pending.
func (k *checkpoint) flush() error {
	k.writing.Lock()
	defer k.writing.Unlock()
	k.mu.Lock()
	work := k.pending
	k.pending, k.writes = map[string]marshaler{}, work
	all := k.all
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.writes = nil
		k.mu.Unlock()
		if k.wrote != nil {
			k.wrote()
		}
	}()
	var errs []error
	folders := map[string]bool{}
	again := func(path string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if _, newer := k.pending[path]; !newer {
			k.pending[path] = work[path]
		}
	}
	for _, path := range sortedKeys(work) {
		dir := filepath.Dir(path)
		// What the next session tells again may be lost with the power: there can be
		// tens of thousands.
		lasting := dir != k.services() && dir != k.slices()
		err := writeCheckpoint(path, work[path], lasting)
		if pod, ok := work[path].(*corev1.Pod); err != nil && ok && terminal(pod.Status.Phase) {
			// An older file would start it again: rather none, and the server tells of it.
			k.log.Error("checkpoint of a pod that has ended cannot be written; it is kept no more", "namespace", pod.Namespace, "pod", pod.Name, "error", err)
			err = writeCheckpoint(path, nil, lasting)
		}
		if err != nil {
			errs = append(errs, err)
			again(path)
			continue
		}
		if lasting {
			folders[dir] = true
		}
	}
	for _, dir := range sortedKeys(folders) {
		if err := syncFolder(dir); err != nil { // the power can still take back what was done in it
			errs = append(errs, err)
			for path := range work {
				if filepath.Dir(path) == dir {
					again(path)
				}
			}
		}
	}
	err := errors.Join(errs...)
	switch {
	case err != nil && k.whole:
		return errors.Join(err, k.belie())
	case err == nil && all && !k.whole:
		return k.attest()
	}
	return err
}

func writeCheckpoint(path string, obj marshaler, lasting bool) error {
	if obj == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	raw, err := encodeCheckpoint(obj)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil && lasting {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
