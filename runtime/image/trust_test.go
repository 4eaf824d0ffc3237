package image

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	digest "github.com/opencontainers/go-digest"
)

func trusting(t *testing.T, s *store, dir string) *Images {
	t.Helper()
	images, err := New(Config{Engine: s, Parallel: 2, Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return images
}

// An image that one pod's secret brought is not given to a pod without it.
func TestAnImagePulledWithASecretIsNotEverybodys(t *testing.T) {
	const ref = "docker.io/me/app:1"
	ana := Keyring{{Registry: "docker.io", Username: "ana", Password: "geheim"}}
	bob := Keyring{{Registry: "docker.io", Username: "bob", Password: "secret"}}
	s, dir := newStore(), t.TempDir()
	s.registry[ref] = "app"
	s.opens = func(c *Credential) error {
		if c == nil {
			return errors.New("401 Unauthorized")
		}
		return nil
	}
	images := trusting(t, s, dir)
	ensure := func(policy Policy, ring Keyring) (pulls int, err error) {
		before := s.pulls
		_, err = images.Ensure(t.Context(), Request{Name: "me/app:1", Policy: policy, Keyring: ring})
		return s.pulls - before, err
	}
	if n, err := ensure(IfNotPresent, ana); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := ensure(IfNotPresent, ana); n != 0 || err != nil {
		t.Errorf("who brought it: %d pulls, %v", n, err)
	}
	var e *Error
	if n, err := ensure(IfNotPresent, nil); n != 1 || !errors.As(err, &e) || e.Reason != ErrImagePull {
		t.Errorf("without a credential: %d pulls, %v", n, err)
	}
	if n, err := ensure(Never, nil); n != 0 || !errors.As(err, &e) || e.Reason != ErrImageNeverPull || !strings.Contains(err.Error(), "is not present") {
		t.Errorf("never: %d pulls, %v", n, err)
	}
	if n, err := ensure(IfNotPresent, bob); n != 1 || err != nil {
		t.Errorf("another credential: %d pulls, %v", n, err)
	}
	if n, err := ensure(Never, bob); n != 0 || err != nil {
		t.Errorf("another credential again: %d pulls, %v", n, err)
	}
	images = trusting(t, s, dir) // started again
	if n, err := ensure(IfNotPresent, ana); n != 0 || err != nil {
		t.Errorf("after a restart: %d pulls, %v", n, err)
	}
	if n, err := ensure(IfNotPresent, nil); n != 1 || err == nil {
		t.Errorf("after a restart, without a credential: %d pulls, %v", n, err)
	}
	s.opens = nil // it is made public
	if n, err := ensure(IfNotPresent, nil); n != 1 || err != nil {
		t.Errorf("public: %d pulls, %v", n, err)
	}
	if n, err := ensure(Never, nil); n != 0 || err != nil {
		t.Errorf("public again: %d pulls, %v", n, err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, secret := range []string{"geheim", "secret", "ana", "bob", ana.fingerprint(), bob.fingerprint()} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s has %q (R14)", path, secret)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What came with an archive, or before there was a record, is everybody's; what came
// by a pull that was killed is nobody's.
func TestPreloadedImagesAreEverybodys(t *testing.T) {
	const ref = "docker.io/me/app:1"
	s, dir := newStore(), t.TempDir()
	s.present[ref] = digest.FromString("app")
	images := trusting(t, s, dir)
	req := Request{Name: "me/app:1", Policy: IfNotPresent}
	if _, err := images.Ensure(t.Context(), req); err != nil || s.pulls != 0 {
		t.Errorf("%v, %d pulls", err, s.pulls)
	}
	// A pull that fails takes nothing away.
	if _, err := images.Ensure(t.Context(), Request{Name: "me/app:1", Policy: Always}); err == nil {
		t.Error("pulled from nowhere")
	}
	if _, err := images.Ensure(t.Context(), req); err != nil {
		t.Error(err)
	}
	if err := images.trust.begin(ref); err != nil { // and was killed
		t.Fatal(err)
	}
	images = trusting(t, s, dir)
	if _, err := images.Ensure(t.Context(), req); err == nil {
		t.Error("an image of a pull whose end is not known was given to anybody")
	}
}

// A pull that fails when the image is there already leaves it to nobody.
func TestAPullThatFailsLate(t *testing.T) {
	const ref = "docker.io/me/app:1"
	s := newStore()
	s.opens = func(c *Credential) error {
		if c == nil {
			return errors.New("401 Unauthorized")
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.present[ref] = digest.FromString("app")
		return errors.New("unpack: no space left on device")
	}
	images := trusting(t, s, t.TempDir())
	ring := Keyring{{Registry: "docker.io", Username: "ana", Password: "geheim"}}
	if _, err := images.Ensure(t.Context(), Request{Name: "me/app:1", Policy: IfNotPresent, Keyring: ring}); err == nil {
		t.Error("no error")
	}
	if _, err := images.Ensure(t.Context(), Request{Name: "me/app:1", Policy: IfNotPresent}); err == nil {
		t.Error("it was given to a pod without a credential")
	}
	if len(images.trust.running) != 0 {
		t.Errorf("%v", images.trust.running)
	}
}

// A record that is torn opens nothing.
func TestATornRecordOpensNothing(t *testing.T) {
	const ref = "docker.io/me/app:1"
	s, dir := newStore(), t.TempDir()
	images := trusting(t, s, dir)
	s.registry[ref] = "app"
	if _, err := images.Ensure(t.Context(), Request{Name: "me/app:1"}); err != nil {
		t.Fatal(err)
	}
	img, err := s.Find(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if !images.trust.open(ref, img, nil) {
		t.Error("anybody's image is closed")
	}
	for _, text := range []string{"", "{", "null", `{"repositories":{}}`} {
		if err := os.WriteFile(images.trust.record(img.ID), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if images.trust.open(ref, img, nil) {
			t.Errorf("%q opens it", text)
		}
	}
}
