package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// searchPath is $PATH in all images.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// substitute is an image of ours under a name that the suite uses.
type substitute struct {
	base   string // one of bases
	more   []file // beside what the base has
	config v1.Config
}

// substitutes are the images that the suite can do with, by the last part of their
// names. agnhost is Kubernetes' own, built from its source; what stands around it there
// comes from Alpine, and here from this machine and busybox.
func substitutes(programs string) map[string]substitute {
	from := func(name string) string { return filepath.Join(programs, name) }
	ports := map[string]struct{}{"80/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}, "5000/tcp": {}}
	return map[string]substitute{
		"agnhost": {base: "agnhost", config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, ExposedPorts: ports}},
		"pause":   {base: "agnhost", config: v1.Config{Entrypoint: []string{"/agnhost", "pause"}}},
		// What is asked of a web server is that it serves, and ends when it is told.
		"nginx": {base: "agnhost", config: v1.Config{Cmd: []string{"/agnhost", "netexec", "--http-port=80", "--udp-port=-1"}}},
		"nautilus": {base: "agnhost", config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}, ExposedPorts: ports}, more: []file{
			{"nautilus.jpg", 0o644, from("nautilus/html/nautilus.jpg")}, {"data.json", 0o644, from("nautilus/html/data.json")}}},
		"busybox":           {base: "busybox", config: v1.Config{Cmd: []string{"sh"}}},
		"nonroot":           {base: "busybox", config: v1.Config{Cmd: []string{"sh"}, User: "1234"}},
		"nonewprivs":        {base: "busybox", config: v1.Config{Cmd: []string{"nnp"}}, more: []file{{"usr/local/bin/nnp", 0o755 | tarSetuid | tarSetgid, from("nnp")}}},
		"glibc-dns-testing": {base: "tools", config: v1.Config{Cmd: []string{"bash"}}},
	}
}

// bases are what the substitutes begin with: busybox and some files, bash among them.
func bases(programs string) map[string]func() ([]file, error) {
	return map[string]func() ([]file, error){
		"busybox": func() ([]file, error) { return installed("bash") },
		"agnhost": func() ([]file, error) {
			files, err := installed("dig", "getent", "bash", "curl", "nc", "ss")
			return append(files,
				file{"agnhost", 0o755, filepath.Join(programs, "agnhost")},
				file{"localhost.crt", 0o644, filepath.Join(programs, "porter/localhost.crt")},
				file{"localhost.key", 0o644, filepath.Join(programs, "porter/localhost.key")}), err
		},
		"tools": func() ([]file, error) { return installed("dig", "bash", "getent") },
	}
}

// image is the substitute on its base.
func (s substitute) image(base v1.Image) (v1.Image, error) {
	if len(s.more) > 0 {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for _, f := range s.more {
			if err := f.write(w); err != nil {
				return nil, err
			}
		}
		var err error
		if base, err = appended(base, w, &buf); err != nil {
			return nil, err
		}
	}
	return configured(base, func(f *v1.ConfigFile) {
		f.OS, f.Architecture, f.Config = "linux", runtime.GOARCH, s.config
		f.Config.Env = []string{searchPath}
	})
}

// Bits of a file's mode as tar has them.
const (
	tarSetuid = 0o4000
	tarSetgid = 0o2000
)

// file is one of an image, and where it comes from.
type file struct {
	name string // without the leading slash
	mode int64
	from string
}

// installed are programs of this machine, and the libraries that they load.
func installed(programs ...string) ([]file, error) {
	var files []file
	add := func(from string) {
		name := strings.TrimPrefix(from, "/")
		if !slices.ContainsFunc(files, func(f file) bool { return f.name == name }) {
			files = append(files, file{name, 0o755, from})
		}
	}
	for _, program := range programs {
		found, err := exec.LookPath(program)
		if err != nil {
			return nil, fmt.Errorf("%w: scripts/conformance installs it", err)
		}
		add(path.Join("/usr/bin", program))
		files[len(files)-1].from = found
		out, err := exec.Command("ldd", found).Output()
		if err != nil {
			return nil, fmt.Errorf("ldd %s: %w", found, err)
		}
		for word := range strings.FieldsSeq(string(out)) {
			if strings.HasPrefix(word, "/") {
				add(path.Clean(word))
			}
		}
	}
	return files, nil
}

// baseImage is busybox by all its names and files, as one layer.
func baseImage(files []file) (v1.Image, error) {
	out, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list what busybox-static can do: %w", err)
	}
	taken := map[string]bool{"sh": true}
	for _, f := range files {
		taken[path.Base(f.name)] = true
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"bin", 0o755}, {"etc", 0o755}, {"tmp", 0o1777}, {"uploads", 0o755}, {"usr", 0o755}, {"usr/bin", 0o755}, {"var", 0o755}, {"var/run", 0o755}, {"home", 0o755}, {"root", 0o700}, {"proc", 0o755}, {"sys", 0o755}, {"dev", 0o755}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name + "/", Mode: dir.mode}); err != nil {
			return nil, err
		}
	}
	for _, f := range []struct{ name, text string }{
		// The user and the group are those that specs about supplementary groups look for.
		{"etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n"},
		{"etc/group", "root:x:0:\nnobody:x:65534:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"},
		{"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"},
	} {
		if err := write(w, f.name, 0o644, []byte(f.text)); err != nil {
			return nil, err
		}
	}
	// The shell is bash: busybox as Debian builds it keeps variables that are no names for
	// a shell, such as data-1, from what it calls, and calls its own nc before another.
	for _, f := range append([]file{{"bin/busybox", 0o755, "/bin/busybox"}, {"bin/sh", 0o755, "/bin/bash"}}, files...) {
		if err := f.write(w); err != nil {
			return nil, err
		}
		if f.name == "agnhost" { // the specs about a container's command call it so
			if err := link(w, "agnhost-2", "agnhost"); err != nil {
				return nil, err
			}
		}
	}
	for tool := range strings.FieldsSeq(string(out)) {
		if tool == "busybox" || taken[tool] {
			continue
		}
		if err := link(w, "bin/"+tool, "/bin/busybox"); err != nil {
			return nil, err
		}
	}
	if err := link(w, "bin/bash", "/bin/sh"); err != nil {
		return nil, err
	}
	return appended(empty.Image, w, &buf)
}

// appended is the image with what w has written to buf as a further layer.
func appended(image v1.Image, w *tar.Writer, buf *bytes.Buffer) (v1.Image, error) {
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestSpeed), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layer)
}

// labelled is the image with its own name as a label.
func labelled(image v1.Image, ref string) (v1.Image, error) {
	return configured(image, func(f *v1.ConfigFile) { f.Config.Labels = map[string]string{"name": ref} })
}

func configured(image v1.Image, change func(*v1.ConfigFile)) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	change(config)
	return mutate.ConfigFile(image, config)
}

func (f file) write(w *tar.Writer) error {
	data, err := os.ReadFile(f.from)
	if err != nil {
		return err
	}
	return write(w, f.name, f.mode, data)
}

func write(w *tar.Writer, name string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

func link(w *tar.Writer, name, to string) error {
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777})
}
