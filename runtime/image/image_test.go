package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"

	digest "github.com/opencontainers/go-digest"
)

// store is an Engine in memory: what a registry has, what the node has.
type store struct {
	mu       sync.Mutex
	registry map[string]string
	present  map[string]digest.Digest
	pulls    int
	imports  int
	during   func(ctx context.Context) error // called in every pull
	fetching func(*Progress)                 // too
	opens    func(*Credential) error         // nil: everybody may pull
}

func newStore() *store {
	return &store{registry: map[string]string{}, present: map[string]digest.Digest{}}
}

func (s *store) Find(_ context.Context, ref string) (Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d, ok := s.present[ref]
	if !ok {
		return Image{}, ErrNotFound
	}
	return Image{Reference: ref, Digest: d, ID: digest.FromString("config of " + ref)}, nil
}

func (s *store) Pull(ctx context.Context, ref string, credential *Credential, progress *Progress) (Image, error) {
	s.mu.Lock()
	s.pulls++
	during, opens := s.during, s.opens
	s.mu.Unlock()
	if opens != nil {
		if err := opens(credential); err != nil {
			return Image{}, err
		}
	}
	if s.fetching != nil {
		s.fetching(progress)
	}
	if during != nil {
		if err := during(ctx); err != nil {
			return Image{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	text, ok := s.registry[ref]
	if !ok {
		return Image{}, errors.New("manifest unknown")
	}
	s.present[ref] = digest.FromString(text)
	return Image{Reference: ref, Digest: s.present[ref], ID: digest.FromString("config of " + ref)}, nil
}

func (s *store) Import(_ context.Context, r io.Reader, name func(string) (string, error)) error {
	found, err := readContents(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imports++
	for _, c := range found {
		full, err := name(c.name)
		if err != nil {
			return err
		}
		s.present[full] = c.digest
	}
	return nil
}

func newImages(t testing.TB, s *store, parallel int) *Images {
	t.Helper()
	images, err := New(Config{Engine: s, Parallel: parallel, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	return images
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"nginx":               "docker.io/library/nginx:latest",
		"nginx:1":             "docker.io/library/nginx:1",
		"me/app":              "docker.io/me/app:latest",
		"localhost:5000/a":    "localhost:5000/a:latest",
		"registry.example/a":  "registry.example/a:latest",
		"headway.local/hi:2":  "headway.local/hi:2",
		"a:1@sha256:" + zeros: "docker.io/library/a@sha256:" + zeros,
	} {
		if got, err := Canonical(name); err != nil || got != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "UPPER", "a b", "a:", "http://a/b", "a@sha256:1"} {
		var e *Error
		if _, err := Canonical(name); !errors.As(err, &e) || e.Reason != InvalidImageName {
			t.Errorf("%q: %v", name, err)
		}
	}
}

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

func TestPolicies(t *testing.T) {
	const ref = "docker.io/library/a:1"
	for _, tc := range []struct {
		policy           Policy
		present, offered bool
		pulls            int
		reason           string
	}{
		{IfNotPresent, false, true, 1, ""},
		{IfNotPresent, true, true, 0, ""},
		{IfNotPresent, false, false, 1, ErrImagePull},
		{Always, true, true, 1, ""},
		{Always, true, false, 1, ErrImagePull},
		{Never, true, true, 0, ""},
		{Never, false, true, 0, ErrImageNeverPull},
	} {
		s := newStore()
		if tc.present {
			s.present[ref] = digest.FromString("old")
		}
		if tc.offered {
			s.registry[ref] = "new"
		}
		var said []string
		_, err := newImages(t, s, 1).Ensure(t.Context(), Request{Name: "a:1", Policy: tc.policy, Progress: func(reason, _ string) { said = append(said, reason) }})
		var e *Error
		if (tc.reason == "") != (err == nil) || err != nil && (!errors.As(err, &e) || e.Reason != tc.reason) {
			t.Errorf("%+v: %v", tc, err)
		}
		if s.pulls != tc.pulls {
			t.Errorf("%+v: %d pulls", tc, s.pulls)
		}
		if err == nil && said[len(said)-1] != "Pulled" {
			t.Errorf("%+v: said %v", tc, said)
		}
	}
}

func TestLocalImagesAreNeverPulled(t *testing.T) {
	s := newStore()
	s.registry["headway.local/a:1"] = "from somebody who owns that name"
	for _, p := range []Policy{IfNotPresent, Always, Never} {
		if _, err := newImages(t, s, 1).Ensure(t.Context(), Request{Name: "headway.local/a:1", Policy: p}); err == nil {
			t.Errorf("policy %d: no error", p)
		}
	}
	s.present["headway.local/a:1"] = digest.FromString("ours")
	if _, err := newImages(t, s, 1).Ensure(t.Context(), Request{Name: "headway.local/a:1", Policy: Always}); err != nil || s.pulls != 0 {
		t.Errorf("%v, %d pulls", err, s.pulls)
	}
}

func TestOnePullForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.registry["docker.io/library/a:1"] = "a"
		gate := make(chan struct{})
		s.during = func(context.Context) error { <-gate; return nil }
		images := newImages(t, s, 3)
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := images.Ensure(t.Context(), Request{Name: "a:1", Policy: Always}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if s.pulls != 1 {
			t.Errorf("%d pulls", s.pulls)
		}
	})
}

func TestPullLivesAsLongAsOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.registry["docker.io/library/a:1"] = "a"
		gate := make(chan struct{})
		var ended error
		s.during = func(ctx context.Context) error {
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				ended = ctx.Err()
				return ctx.Err()
			}
		}
		images := newImages(t, s, 1)
		first, leave := context.WithCancel(t.Context())
		second, leaveToo := context.WithCancel(t.Context())
		results := make(chan error, 2)
		for _, ctx := range []context.Context{first, second} {
			go func() {
				_, err := images.Ensure(ctx, Request{Name: "a:1", Policy: Always})
				results <- err
			}()
		}
		synctest.Wait()
		leave()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if ended != nil {
			t.Error("the pull ended though one waits")
		}
		leaveToo()
		<-results
		synctest.Wait()
		if ended == nil {
			t.Error("the pull goes on though nobody waits")
		}
	})
}

func TestPullsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		gate := make(chan struct{})
		s.during = func(context.Context) error { <-gate; return nil }
		images := newImages(t, s, 2)
		var wg sync.WaitGroup
		for i := range 5 {
			ref := fmt.Sprintf("a:%d", i)
			s.registry["docker.io/library/"+ref] = ref
			wg.Go(func() {
				if _, err := images.Ensure(t.Context(), Request{Name: ref, Policy: Always}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if s.pulls != 2 {
			t.Errorf("%d pulls at once", s.pulls)
		}
		close(gate)
		wg.Wait()
	})
}

func TestR14_ErrorsHoldNoCredential(t *testing.T) {
	for _, text := range []string{
		"get https://user:hunter2@registry.example/v2/: 401",
		`Get "https://cdn.example/blob?X-Amz-Signature=hunter2&a=b": EOF`,
		"redirect to https://cdn.example/blob#hunter2",
		"HTTPS://u:hunter2@x/y",
	} {
		s := newStore()
		cause := errors.New(text)
		s.during = func(context.Context) error { return cause }
		_, err := newImages(t, s, 1).Ensure(t.Context(), Request{Name: "a:1", Policy: Always})
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		if !errors.Is(err, cause) {
			t.Errorf("%v hides its cause", err)
		}
	}
}

// archive packs an index.json that names images.
func archive(t testing.TB, file, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range []struct{ name, text string }{{"blobs/sha256/x", "blob"}, {file, text}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Size: int64(len(f.text)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func index(name, annotation, hex string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"digest":"sha256:%s","annotations":{%q:%q}}]}`, hex, annotation, name)
}

func TestImport(t *testing.T) {
	s := newStore()
	images := newImages(t, s, 1)
	folder := fstest.MapFS{
		"b.tar":      {Data: archive(t, "index.json", index("headway.local/b:1", annotationName, zeros))},
		"tagged.tar": {Data: archive(t, "index.json", index("3", "org.opencontainers.image.ref.name", zeros))},
		"old.tar":    {Data: archive(t, "manifest.json", `[{"Config":"`+zeros+`.json","RepoTags":["old:1"]}]`)},
		"bad.tar":    {Data: []byte("no archive")},
		"notes.txt":  {Data: []byte("not looked at")},
	}
	err := images.Import(t.Context(), nil, folder)
	if err == nil || !strings.Contains(err.Error(), "bad.tar") {
		t.Errorf("%v", err)
	}
	for _, ref := range []string{"headway.local/b:1", "docker.io/library/tagged:3", "docker.io/library/old:1"} {
		if _, ok := s.present[ref]; !ok {
			t.Errorf("%s is not present: %v", ref, s.present)
		}
	}
	if s.imports != 3 {
		t.Errorf("%d imports", s.imports)
	}
	delete(folder, "bad.tar")
	if err := images.Import(t.Context(), nil, folder); err != nil || s.imports != 3 {
		t.Errorf("again: %v, %d imports", err, s.imports)
	}
	folder["b.tar"].Data = archive(t, "index.json", index("headway.local/b:1", annotationName, strings.Repeat("1", 64)))
	if err := images.Import(t.Context(), nil, folder); err != nil || s.imports != 4 {
		t.Errorf("changed: %v, %d imports", err, s.imports)
	}
}

func TestEnsureWaitsForTheImportThatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		images := newImages(t, s, 1)
		gate := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- images.Import(t.Context(), func() { <-gate }, fstest.MapFS{
				"a.tar": {Data: archive(t, "index.json", index("headway.local/a:1", annotationName, zeros))},
			})
		}()
		synctest.Wait()
		found := make(chan error, 1)
		go func() {
			_, err := images.Ensure(t.Context(), Request{Name: "headway.local/a:1", Policy: IfNotPresent})
			found <- err
		}()
		synctest.Wait()
		close(gate)
		if err := errors.Join(<-done, <-found); err != nil {
			t.Error(err)
		}
	})
}

func FuzzReadContents(f *testing.F) {
	f.Add(archive(f, "index.json", index("a", annotationName, zeros)))
	f.Add(archive(f, "manifest.json", `[{"Config":"x","RepoTags":["a"]}]`))
	f.Add([]byte("no archive"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := readContents(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, c := range found {
			if c.digest.Validate() != nil {
				t.Errorf("%+v", c)
			}
		}
	})
}
