package e2e

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The test images as pods name them.
const (
	probeName     = "headway.local/probe:1"
	inclusterName = "headway.local/incluster:1"
)

// The images of the test programs, each built once.
var (
	probeImage     = sync.OnceValues(func() (v1.Image, error) { return programImage("probe") })
	inclusterImage = sync.OnceValues(func() (v1.Image, error) { return programImage("incluster") })
)

// programImage is an image of a program in a folder beside this file.
func programImage(program string) (v1.Image, error) {
	binary := filepath.Join(host.dir, program)
	cmd := exec.Command("go", "build", "-o", binary, "./"+program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, &exec.Error{Name: string(out), Err: err}
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: program, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return imageOf(buf.Bytes(), v1.Config{Entrypoint: []string{"/" + program}, Env: []string{"PATH=/"}})
}

// imageOf is an image of one layer, a tar archive.
func imageOf(archive []byte, config v1.Config) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", "amd64", config
	return mutate.ConfigFile(image, file)
}

// addProbe puts the test image where headway imports images from at its start.
func (c *cluster) addProbe() {
	c.t.Helper()
	image, err := probeImage()
	if err != nil {
		c.t.Fatal(err)
	}
	c.addImage(probeName, image)
}

// addImage puts an image there.
func (c *cluster) addImage(name string, image v1.Image) {
	c.t.Helper()
	oci, err := os.MkdirTemp(c.dir, "oci")
	if err != nil {
		c.t.Fatal(err)
	}
	index, err := layout.Write(oci, empty.Index)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := index.AppendImage(image, layout.WithAnnotations(map[string]string{"io.containerd.image.name": name})); err != nil {
		c.t.Fatal(err)
	}
	images := filepath.Join(c.data(), "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		c.t.Fatal(err)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.AddFS(os.DirFS(oci)); err != nil {
		c.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(images, strings.NewReplacer("/", "-", ":", "-").Replace(name)+".tar"), buf.Bytes(), 0o644); err != nil {
		c.t.Fatal(err)
	}
}
