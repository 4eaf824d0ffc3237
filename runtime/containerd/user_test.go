package containerd

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"headway.dev/headway/runtime/agent"
)

func TestLookUp(t *testing.T) {
	lists := fstest.MapFS{
		"etc/passwd": {Data: []byte("root:x:0:0::/:\nana:x:1000:100::/home:\n")},
		"etc/group":  {Data: []byte("root:x:0:\nana:x:1000:ana\nwheel:x:2000:ana\nstaff:x:50:bob\n")},
	}
	for _, c := range []struct {
		root fs.FS
		name string
		want specs.User
		err  string
	}{
		{root: lists, want: specs.User{AdditionalGids: []uint32{0}}},
		{root: lists, name: "0", want: specs.User{AdditionalGids: []uint32{0}}},
		{root: lists, name: "ana", want: specs.User{UID: 1000, GID: 100, AdditionalGids: []uint32{100, 2000}}},
		{root: lists, name: "1000", want: specs.User{UID: 1000, GID: 100, AdditionalGids: []uint32{100, 2000}}},
		{root: lists, name: "7", want: specs.User{UID: 7, AdditionalGids: []uint32{0}}},
		{root: lists, name: "ana:wheel", want: specs.User{UID: 1000, GID: 2000, AdditionalGids: []uint32{2000}}},
		{root: lists, name: "7:9", want: specs.User{UID: 7, GID: 9, AdditionalGids: []uint32{9}}},
		{root: lists, name: "7:staff", want: specs.User{UID: 7, GID: 50, AdditionalGids: []uint32{50}}},
		{root: lists, name: "eve", err: "no users found"},
		{root: lists, name: "ana:nobody", err: "no groups found"},
		{root: lists, name: "1:2:3", err: "not of the form"},
		{root: lists, name: "2147483648", err: "no number of a user"},
		{root: lists, name: "99999999999999999999", err: "no number of a user"},
		{root: lists, name: "-5", err: "no number of a user"},
		{root: lists, name: "0:-1", err: "no number of a user"},
		{root: fstest.MapFS{}, name: "7", want: specs.User{UID: 7, AdditionalGids: []uint32{0}}},
		{root: fstest.MapFS{}, want: specs.User{AdditionalGids: []uint32{0}}},
		{root: fstest.MapFS{}, name: "ana", err: "not exist"},
		{root: fstest.MapFS{"etc/passwd": lists["etc/passwd"], "etc/group": {Data: bytes.Repeat([]byte("a:x:1:\n"), longestList/7+2)}}, name: "ana", err: "longer than"},
		{root: fstest.MapFS{"etc/passwd": {Data: bytes.Repeat([]byte("a:x:1:1::/:\n"), longestList/12+2)}}, name: "ana", err: "exceeds"},
	} {
		got, err := lookUp(c.root, c.name)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: error %v, want %q", c.name, err, c.err)
		} else if err == nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// A file that is none holds nobody, and no link leads out of the image.
func TestPlainFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, "root", name) }
	if err := os.MkdirAll(at("etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"root/etc/plain": "inside", "secret": "outside", "root/secret": "inside"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"etc/relative": "../etc/plain", "etc/absolute": "/etc/plain", "etc/out": "../../../secret", "etc/tofifo": "fifo", "etc/loop": "loop", "etc/nowhere": "gone"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(at("etc/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(filepath.Join(dir, "root"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(root)
	for name, want := range map[string]string{"plain": "inside", "relative": "inside", "absolute": "inside", "out": "inside"} {
		text, err := fs.ReadFile(plainFiles{root}, "etc/"+name)
		if err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for name, want := range map[string]string{"fifo": "not a regular file", "tofifo": "not a regular file", ".": "not a regular file", "loop": "symbolic links", "nowhere": "no such file"} {
		if f, err := (plainFiles{root}).Open("etc/" + name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// An image whose list of users is a FIFO keeps no other container from starting: to open
// it would take for ever, and one of the places in which containers are made.
func TestImageWithFIFOs(t *testing.T) {
	n := newNode(t)
	program, err := os.ReadFile(filepath.Join(n.shared.dir, "program"))
	if err != nil {
		t.Fatal(err)
	}
	const name = "headway.local/fifo:1"
	n.close()
	n.cfg.Parallel = 1
	n.cfg.Archives = append(n.cfg.Archives, fstest.MapFS{"fifo.tar": {Data: ociArchive(t, name, withFIFO(t, programImage(t, program), "etc/passwd"))}})
	n.open()
	bad := testPod("echo")
	bad.Spec.Containers[0].Image = name
	if _, err := n.EnsureSandbox(t.Context(), agent.SandboxSpec{Pod: bad}); err != nil {
		t.Fatal(err)
	}
	spec := n.specOf(bad, 0, 0)
	failed := make(chan error, 1)
	go func() {
		_, err := n.StartContainer(t.Context(), spec)
		failed <- err
	}()
	select {
	case err := <-failed:
		var unmade *agent.CreateError
		if !errors.As(err, &unmade) || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("it failed with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("its start does not end")
	}
	good := testPod("echo")
	n.exit(good.UID, n.start(good).ID)
	if left, err := os.ReadDir(n.engine.looks.dir); err != nil || len(left) != 0 {
		t.Errorf("mounts are left: %v, %v", left, err)
	}
}

func withFIFO(t *testing.T, img v1.Image, name string) v1.Image {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeFifo}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return must(mutate.AppendLayers(img, layer))
}
