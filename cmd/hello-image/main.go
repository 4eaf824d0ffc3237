// Command hello-image packs the static hello program into one OCI archive with
// the images headway.local/hello:1 and headway.local/hello:2, which share their
// layer. make build runs it; no network and no container engine is needed.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	program := flag.String("program", "bin/hello", "static program to pack")
	out := flag.String("out", "", "OCI archive to write")
	arch := flag.String("arch", "amd64", "architecture of the program, as Go names it")
	flag.Parse()
	if err := run(*program, *out, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "hello-image:", err)
		os.Exit(1)
	}
}

func run(program, out, arch string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	layer, err := rootfs(binary)
	if err != nil {
		return fmt.Errorf("make the layer: %w", err)
	}
	dir, err := os.MkdirTemp("", "hello-image")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, version := range []string{"1", "2"} {
		image, err := hello(layer, version, arch)
		if err != nil {
			return fmt.Errorf("make version %s: %w", version, err)
		}
		name := map[string]string{
			"io.containerd.image.name":          "headway.local/hello:" + version,
			"org.opencontainers.image.ref.name": version,
		}
		if err := index.AppendImage(image, layout.WithAnnotations(name)); err != nil {
			return err
		}
	}
	return archive(dir, out)
}

func hello(layer v1.Layer, version, arch string) (v1.Image, error) {
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{
		Entrypoint:   []string{"/hello"},
		Env:          []string{"PATH=/", "VERSION=" + version},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		User:         "65532:65532",
		WorkingDir:   "/",
	}
	return mutate.ConfigFile(image, file)
}

// rootfs is a layer with the program and the few files a program expects. The
// same input gives the same bytes.
func rootfs(binary []byte) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	files := []struct {
		name string
		mode int64
		data []byte
	}{
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/none\nnonroot:x:65532:65532:nonroot:/:/none\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"hello", 0o755, binary},
	}
	for _, dir := range []struct {
		name string
		mode int64
	}{{"etc/", 0o755}, {"tmp/", 0o1777}} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode}); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	raw := buf.Bytes()
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil })
}

// archive writes an OCI layout folder as one tar file, atomically.
func archive(dir, out string) error {
	temp, err := os.CreateTemp(filepath.Dir(out), ".hello-image-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	w := tar.NewWriter(temp)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return fmt.Errorf("pack %s: %w", dir, err)
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return os.Rename(temp.Name(), out)
}
