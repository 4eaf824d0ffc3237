package image

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	digest "github.com/opencontainers/go-digest"
)

// trust remembers on disk which credentials brought which image, so that a pod gets
// no image that another pod's secret brought. It holds no credential, only what a key
// of this node makes of one (R14). The rule is Kubernetes' NeverVerifyPreloadedImages:
// an image that no pull brought is for everybody.
//
//	key                    of this node, random
//	pulling/<of the name>  a pull began, and its end is not on record
//	pulled/<image>.json    a pulled record
//
// A nil trust keeps nothing and lets everybody have everything.
type trust struct {
	dir string
	key []byte

	mu      sync.Mutex
	running map[string]int // pulls of a name
}

// pulledRecord says who may have an image, by repository.
type pulledRecord struct {
	Repositories map[string]access `json:"repositories"`
}

type access struct {
	Anybody     bool     `json:"anybody,omitempty"`
	Credentials []string `json:"credentials,omitempty"` // the newest last
}

// maxAccess bounds the credentials of an image that are remembered, and its
// repositories. Who is forgotten is asked for at the registry again.
const maxAccess = 100

func openTrust(dir string) (*trust, error) {
	t := &trust{dir: dir, running: map[string]int{}}
	for _, d := range []string{t.path("pulling"), t.path("pulled")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the record of pulled images: %w", err)
		}
	}
	key, err := os.ReadFile(t.path("key"))
	if err == nil && len(key) == sha256.Size {
		t.key = key
		return t, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the key of the record of pulled images: %w", err)
	}
	t.key = make([]byte, sha256.Size) // with another key nobody is known any more, and the registries are asked
	rand.Read(t.key)                  // never fails
	return t, replace(t.path("key"), t.key)
}

func (t *trust) path(parts ...string) string {
	return filepath.Join(append([]string{t.dir}, parts...)...)
}

// intent is the file that says that a pull of a name began.
func (t *trust) intent(ref string) string {
	sum := sha256.Sum256([]byte(ref))
	return t.path("pulling", hex.EncodeToString(sum[:]))
}

func (t *trust) record(id digest.Digest) string { return t.path("pulled", id.Encoded()+".json") }

// begin notes that a pull begins, before anything of it is there.
func (t *trust) begin(ref string) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running[ref]++
	return replace(t.intent(ref), []byte(ref))
}

// failed notes that a pull came to nothing, but perhaps to what is there now: that may
// have come with a credential, though not all of its pull went well. nil: it left
// things as they were.
func (t *trust) failed(ref string, left *Image) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if left != nil {
		if rec, err := t.read(left.ID); err != nil || len(rec.Repositories) == 0 {
			if t.running[ref]--; t.running[ref] <= 0 {
				delete(t.running, ref)
			}
			return err
		}
	}
	return t.end(ref)
}

// end is for who holds mu.
func (t *trust) end(ref string) error {
	if t.running[ref]--; t.running[ref] > 0 {
		return nil
	}
	delete(t.running, ref)
	if err := os.Remove(t.intent(ref)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("end the record of a pull of %s: %w", ref, err)
	}
	return nil
}

// pulled notes what a credential, or nobody's, brought.
func (t *trust) pulled(ref string, img Image, c *Credential) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rec, err := t.read(img.ID)
	if err != nil {
		return err
	}
	repository := Repository(ref)
	a, known := rec.Repositories[repository]
	if !known && len(rec.Repositories) >= maxAccess {
		clear(rec.Repositories)
	}
	if c == nil {
		a.Anybody = true
	} else {
		sum := t.sum(c)
		a.Credentials = append(slices.DeleteFunc(a.Credentials, func(s string) bool { return s == sum }), sum)
		a.Credentials = a.Credentials[max(len(a.Credentials)-maxAccess, 0):]
	}
	rec.Repositories[repository] = a
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("record who pulled %s: %w", ref, err)
	}
	if err := replace(t.record(img.ID), data); err != nil {
		return err
	}
	return t.end(ref)
}

// forget drops the record of an image that is gone.
func (t *trust) forget(id digest.Digest) error {
	if t == nil || id.Validate() != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := os.Remove(t.record(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record of image %s: %w", id, err)
	}
	return nil
}

// open says whether a pod with these credentials may have an image that is there
// without asking its registry. What cannot be read is not known: it is asked.
func (t *trust) open(ref string, img Image, ring Keyring) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	rec, err := t.read(img.ID)
	if err != nil {
		return false
	}
	if len(rec.Repositories) == 0 {
		_, err := os.Lstat(t.intent(ref))
		return errors.Is(err, fs.ErrNotExist) // it came with an archive, or before this record began
	}
	a := rec.Repositories[Repository(ref)]
	return a.Anybody || slices.ContainsFunc(ring, func(c Credential) bool { return slices.Contains(a.Credentials, t.sum(&c)) })
}

// read is for who holds mu. A record that is torn says that nobody is known.
func (t *trust) read(id digest.Digest) (pulledRecord, error) {
	rec := pulledRecord{Repositories: map[string]access{}}
	if err := id.Validate(); err != nil {
		return rec, fmt.Errorf("image %q: %w", id, err)
	}
	data, err := os.ReadFile(t.record(id))
	if errors.Is(err, fs.ErrNotExist) {
		return rec, nil
	}
	if err != nil {
		return rec, fmt.Errorf("read who pulled image %s: %w", id, err)
	}
	if json.NewDecoder(bytes.NewReader(data)).Decode(&rec) != nil || len(rec.Repositories) == 0 {
		rec.Repositories = map[string]access{"": {}} // somebody
	}
	return rec, nil
}

// sum stands for a credential.
func (t *trust) sum(c *Credential) string {
	h := hmac.New(sha256.New, t.key)
	h.Write([]byte(Keyring{*c}.fingerprint())) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// replace writes a file whole, and to the disk: what it says must be there after a
// power loss, when the image is.
func replace(path string, data []byte) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the record of pulled images: %w", err)
		}
	}()
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
