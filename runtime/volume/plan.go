package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Source is what volumes are filled from.
type Source struct {
	ConfigMap func(name string) *corev1.ConfigMap // of the pod's namespace; nil: there is none
	Secret    func(name string) *corev1.Secret
	// Field is a field of the pod, and Resource a container's request or limit, as a
	// variable would show it.
	Field    func(path string) (string, error)
	Resource func(ref *corev1.ResourceFieldSelector) (string, error)
	Memory   int64 // that pods of this node can have
	// Claim is one of the pod's namespace, and PersistentVolume one that this node may
	// have; nil: there is none.
	Claim            func(name string) *corev1.PersistentVolumeClaim
	PersistentVolume func(name string) *corev1.PersistentVolume
	Node, Dir        string // this node's name, and the folder of the volumes that it makes
}

// Volume is what one volume of a pod has to be.
type Volume struct {
	Name  string
	Kind  Kind
	Path  string              // Host, Local: on this machine; NFS: on the server
	Type  corev1.HostPathType // Host, and Local if Recursive
	Size  int64               // Memory, Huge: at most so many bytes; 0: no bound
	Page  int64               // Huge: bytes of a page
	Files map[string]File     // Content: by path
	Group *int64              // to which the files belong; nil: root's

	Persistent string   // Local: the volume whose folder it is, in the place of Path
	Recursive  bool     // Local: with what is mounted in it
	ReadOnly   bool     // Local, NFS, Mounted: containers do not write
	Mismatch   bool     // Local: the files are given to Group only if the folder is not its
	Server     string   // NFS
	Options    []string // NFS: of the mount
}

// Kind of a volume.
type Kind string

const (
	Disk    Kind = "disk"    // an empty folder on the disk
	Memory  Kind = "memory"  // an empty folder in memory
	Huge    Kind = "huge"    // an empty folder in memory of huge pages
	Host    Kind = "host"    // a path of the machine
	Content Kind = "content" // files that we write
	Local   Kind = "local"   // a folder of the machine that outlives the pod
	NFS     Kind = "nfs"     // a folder of another machine
	Mounted Kind = "mounted" // what Ensure has mounted there
)

// File of a volume.
type File struct {
	Data []byte
	Mode fs.FileMode
}

// Error says which volume cannot be made, and why. Missing: an object that comes may
// solve it.
type Error struct {
	Volume  string
	Missing bool
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}
func (e *Error) Unwrap() error { return e.Err }

// errMissing marks what an object that comes may solve.
var errMissing = errors.New("missing")

type missing struct{ error }

func (missing) Is(target error) bool { return target == errMissing }

func missingf(format string, args ...any) error { return missing{fmt.Errorf(format, args...)} }

// Wanted are a pod's volumes, in the manifest's order. Its error is one *Error, the
// first volume's that cannot be.
func Wanted(pod *corev1.Pod, from Source) ([]Volume, error) {
	var group *int64
	mismatch := false
	if s := pod.Spec.SecurityContext; s != nil {
		group = s.FSGroup
		mismatch = s.FSGroupChangePolicy != nil && *s.FSGroupChangePolicy == corev1.FSGroupChangeOnRootMismatch
	}
	out := make([]Volume, 0, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		w, err := placed(v)
		if err == nil {
			err = from.fill(&w, pod, v)
		}
		if err != nil {
			return nil, &Error{Volume: v.Name, Missing: errors.Is(err, errMissing), Err: err}
		}
		if w.grouped() {
			w.Group, w.Mismatch = group, mismatch
		}
		for p := range w.Files {
			if err := checkPath(p); err != nil {
				return nil, &Error{Volume: v.Name, Err: err}
			}
		}
		if err := checkNesting(w.Files); err != nil {
			return nil, &Error{Volume: v.Name, Err: err}
		}
		out = append(out, w)
	}
	return out, nil
}

// Places are a pod's volumes without what they hold: enough to mount those that
// Ensure made, also when what they were filled from is gone.
func Places(pod *corev1.Pod) ([]Volume, error) {
	out := make([]Volume, 0, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		w, err := placed(&pod.Spec.Volumes[i])
		if err != nil {
			return nil, &Error{Volume: pod.Spec.Volumes[i].Name, Err: err}
		}
		out = append(out, w)
	}
	return out, nil
}

func placed(v *corev1.Volume) (Volume, error) {
	w := Volume{Name: v.Name}
	switch {
	case v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory:
		w.Kind = Memory
	case v.EmptyDir != nil && isHuge(v.EmptyDir.Medium):
		w.Kind = Huge
	case v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumDefault:
		w.Kind = Disk
	case v.HostPath != nil:
		w.Kind, w.Path = Host, v.HostPath.Path
		if v.HostPath.Type != nil {
			w.Type = *v.HostPath.Type
		}
	case v.ConfigMap != nil, v.Secret != nil, v.DownwardAPI != nil, v.Projected != nil:
		w.Kind = Content
	case v.PersistentVolumeClaim != nil:
		w.Kind, w.ReadOnly = Mounted, v.PersistentVolumeClaim.ReadOnly
	case v.Ephemeral != nil:
		w.Kind = Mounted
	case v.NFS != nil:
		w.Kind, w.Server, w.Path, w.ReadOnly = NFS, v.NFS.Server, v.NFS.Path, v.NFS.ReadOnly
	default:
		return w, errors.New("a volume of this type is not mounted by this version of Headway")
	}
	return w, nil
}

// fill says what a volume holds and how much it may.
func (from Source) fill(w *Volume, pod *corev1.Pod, v *corev1.Volume) error {
	switch w.Kind {
	case Memory:
		w.Size = memorySize(pod, v.EmptyDir, from.Memory)
	case Huge:
		return huge(w, pod, v.EmptyDir)
	case Content:
		w.Files = map[string]File{}
	}
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return from.configMap(w.Files, s.Name, s.Items, mode(s.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode), s.Optional)
	case v.Secret != nil:
		s := v.Secret
		return from.secret(w.Files, s.SecretName, s.Items, mode(s.DefaultMode, corev1.SecretVolumeSourceDefaultMode), s.Optional)
	case v.DownwardAPI != nil:
		s := v.DownwardAPI
		return from.downward(w.Files, pod, s.Items, mode(s.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode))
	case v.Projected != nil:
		return from.projected(w.Files, pod, v.Projected)
	case w.Kind == Mounted:
		return from.claimed(w, pod, v)
	}
	return nil
}

// memorySize bounds an emptyDir in memory: by what the node has, by what the pod may
// use, by its own limit.
func memorySize(pod *corev1.Pod, s *corev1.EmptyDirVolumeSource, node int64) int64 {
	size := node
	lower := func(n int64) {
		if n > 0 && (size <= 0 || n < size) {
			size = n
		}
	}
	var sum int64
	for i := range pod.Spec.Containers {
		limit := pod.Spec.Containers[i].Resources.Limits.Memory().Value()
		if limit == 0 {
			sum = 0
			break
		}
		sum += limit
	}
	lower(sum)
	if s.SizeLimit != nil {
		lower(s.SizeLimit.Value())
	}
	return size
}

func mode(set *int32, otherwise int32) fs.FileMode {
	if set != nil {
		otherwise = *set
	}
	return fileMode(otherwise)
}

// fileMode turns the mode of a manifest, whose higher bits mean what chmod's do.
func fileMode(m int32) fs.FileMode { return fs.FileMode(m) & fs.ModePerm }

func is(b *bool) bool { return b != nil && *b }

func (from Source) configMap(files map[string]File, name string, items []corev1.KeyToPath, mode fs.FileMode, optional *bool) error {
	cm := from.ConfigMap(name)
	if cm == nil {
		if is(optional) {
			return nil
		}
		return missingf("configmap %q not found", name)
	}
	data := make(map[string][]byte, len(cm.Data)+len(cm.BinaryData))
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	return project(files, data, items, mode, is(optional), "configmap references non-existent config key: ")
}

func (from Source) secret(files map[string]File, name string, items []corev1.KeyToPath, mode fs.FileMode, optional *bool) error {
	s := from.Secret(name)
	if s == nil {
		if is(optional) {
			return nil
		}
		return missingf("secret %q not found", name)
	}
	return project(files, s.Data, items, mode, is(optional), "references non-existent secret key: ")
}

// project puts the chosen keys of an object at their paths; all at their names when
// none is chosen.
func project(files map[string]File, data map[string][]byte, items []corev1.KeyToPath, mode fs.FileMode, optional bool, absent string) error {
	if len(items) == 0 {
		for k, v := range data {
			files[k] = File{Data: v, Mode: mode}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		switch {
		case !ok && optional:
			continue
		case !ok:
			return missingf("%s%s", absent, item.Key)
		}
		m := mode
		if item.Mode != nil {
			m = fileMode(*item.Mode)
		}
		files[clean(item.Path)] = File{Data: v, Mode: m}
	}
	return nil
}

// clean takes what means nothing out of a path. One that leads elsewhere stays as it
// is, to be refused.
func clean(p string) string {
	if checkPath(p) != nil {
		return p
	}
	return path.Clean(p)
}

func (from Source) downward(files map[string]File, pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode fs.FileMode) error {
	for _, item := range items {
		m := mode
		if item.Mode != nil {
			m = fileMode(*item.Mode)
		}
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = from.field(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = from.Resource(item.ResourceFieldRef)
		default:
			err = fmt.Errorf("the file %q names neither a field nor a resource", item.Path)
		}
		if err != nil {
			return err
		}
		files[clean(item.Path)] = File{Data: []byte(text), Mode: m}
	}
	return nil
}

func (from Source) projected(files map[string]File, pod *corev1.Pod, p *corev1.ProjectedVolumeSource) error {
	m := mode(p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for _, s := range p.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = from.configMap(files, s.ConfigMap.Name, s.ConfigMap.Items, m, s.ConfigMap.Optional)
		case s.Secret != nil:
			err = from.secret(files, s.Secret.Name, s.Secret.Items, m, s.Secret.Optional)
		case s.DownwardAPI != nil:
			err = from.downward(files, pod, s.DownwardAPI.Items, m)
		default:
			err = errors.New("a projection of this type is not made by this version of Headway")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// field is what a file shows of the pod: of its metadata what a variable can show, and
// all labels or annotations.
func (from Source) field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	if !strings.HasPrefix(path, "metadata.") {
		return "", fmt.Errorf("unsupported fieldPath: %s", path)
	}
	return from.Field(path)
}

// lines shows a map: a line for each key, in order, its value quoted.
func lines(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+strconv.Quote(m[k]))
	}
	return strings.Join(out, "\n")
}

const (
	longestPath = 4096
	longestName = 255
)

// checkPath says what is wrong with the path of a file in a volume. A name that
// begins with two dots at the top is ours.
func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("invalid path: it must not be empty")
	case path.IsAbs(p):
		return fmt.Errorf("invalid path: must be relative path: %s", p)
	case len(p) > longestPath:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", longestPath)
	case strings.ContainsRune(p, 0):
		return errors.New("invalid path: it has a NUL character")
	}
	top := true
	for name := range strings.SplitSeq(p, "/") {
		switch {
		case name == "..":
			return fmt.Errorf("invalid path: must not contain '..': %s", p)
		case len(name) > longestName:
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", longestName)
		case name == "" || name == ".":
			continue
		case top && strings.HasPrefix(name, ".."):
			return fmt.Errorf("invalid path: must not start with '..': %s", p)
		}
		top = false
	}
	if top {
		return fmt.Errorf("invalid path: it names no file: %s", p)
	}
	return nil
}

// checkNesting refuses a file that would have to be a folder, too.
func checkNesting(files map[string]File) error {
	for _, p := range slices.Sorted(maps.Keys(files)) {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if _, ok := files[dir]; ok {
				return fmt.Errorf("invalid path: %s is a file and cannot hold %s", dir, p)
			}
		}
	}
	return nil
}
