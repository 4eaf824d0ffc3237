package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxIndex bounds the table of contents of an archive.
const maxIndex = 4 << 20

// annotationName is where container tools put an image's whole name.
const annotationName = "io.containerd.image.name"

// Import brings in the images of the archives *.tar of each folder, sorted, that
// are not there yet with the very digest. It reads only the table of contents of
// those that are. An archive that cannot be imported is reported with the rest
// and stops nothing. From the moment that began is called on, who does not find
// an image waits for the import to be over.
func (i *Images) Import(ctx context.Context, began func(), folders ...fs.FS) error {
	over := make(chan struct{})
	i.mu.Lock()
	i.importing = over
	i.mu.Unlock()
	defer close(over)
	if began != nil {
		began()
	}
	var errs []error
	for _, folder := range folders {
		names, err := fs.Glob(folder, "*.tar")
		if err != nil {
			return fmt.Errorf("list image archives: %w", err)
		}
		slices.Sort(names)
		for _, name := range names {
			if err := i.importOne(ctx, folder, name); err != nil {
				errs = append(errs, fmt.Errorf("import image archive %s: %w", name, err))
			}
		}
	}
	return errors.Join(errs...)
}

func (i *Images) importOne(ctx context.Context, folder fs.FS, name string) error {
	base := strings.TrimSuffix(path.Base(name), ".tar")
	contents, err := list(folder, name, base)
	if err != nil {
		return err
	}
	missing := false
	for _, c := range contents {
		i.mu.Lock()
		i.preloaded[c.name] = true
		i.mu.Unlock()
		img, err := i.cfg.Engine.Find(ctx, c.name)
		switch {
		case errors.Is(err, ErrNotFound):
			missing = true
		case err != nil:
			return err
		case img.Digest != c.digest && img.ID != c.digest:
			missing = true
		}
	}
	if !missing {
		return nil
	}
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // opened for reading: nothing to lose
	err = i.cfg.Engine.Import(ctx, f, func(n string) (string, error) { return fromArchive(n, base) })
	if err != nil {
		return err
	}
	for _, c := range contents {
		i.cfg.Log.Info("image imported", "image", c.name, "archive", name)
	}
	return nil
}

// content is one image of an archive: by its manifest (OCI) or its
// configuration (Docker's older format).
type content struct {
	name   string
	digest digest.Digest
}

// list reads an archive's table of contents.
func list(folder fs.FS, name, base string) ([]content, error) {
	f, err := folder.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // opened for reading: nothing to lose
	found, err := readContents(f)
	if err != nil {
		return nil, err
	}
	for k := range found {
		if found[k].name, err = fromArchive(found[k].name, base); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, errors.New("it names no image")
	}
	return found, nil
}

// readContents finds index.json, or else manifest.json, in a tar stream. Where
// the stream can seek, the bodies of other files are skipped unread.
func readContents(r io.Reader) ([]content, error) {
	var index, manifest []byte
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		var into *[]byte
		switch path.Clean(h.Name) {
		case ocispec.ImageIndexFile:
			into = &index
		case "manifest.json":
			into = &manifest
		default:
			continue
		}
		if h.Size > maxIndex {
			return nil, fmt.Errorf("%s has %d bytes", h.Name, h.Size)
		}
		if *into, err = io.ReadAll(io.LimitReader(t, maxIndex)); err != nil {
			return nil, fmt.Errorf("read archive: %w", err)
		}
		if index != nil {
			break // it alone says everything
		}
	}
	switch {
	case index != nil:
		return ociContents(index)
	case manifest != nil:
		return dockerContents(manifest)
	}
	return nil, errors.New("it is no image archive: neither index.json nor manifest.json is in it")
}

func ociContents(data []byte) ([]content, error) {
	var index ocispec.Index
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, fmt.Errorf("decode index.json: %w", err)
	}
	var found []content
	for _, m := range index.Manifests {
		name := m.Annotations[annotationName]
		if name == "" {
			name = m.Annotations[ocispec.AnnotationRefName]
		}
		if name == "" {
			continue
		}
		if err := m.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("decode index.json: digest of %s: %w", name, err)
		}
		found = append(found, content{name, m.Digest})
	}
	return found, nil
}

func dockerContents(data []byte) ([]content, error) {
	var manifest []struct {
		Config   string
		RepoTags []string
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, fmt.Errorf("decode manifest.json: %w", err)
	}
	var found []content
	for _, m := range manifest {
		hex := strings.TrimSuffix(path.Base(m.Config), ".json")
		hex = strings.TrimPrefix(hex, "sha256:")
		d := digest.NewDigestFromEncoded(digest.SHA256, hex)
		if err := d.Validate(); err != nil {
			return nil, fmt.Errorf("decode manifest.json: configuration %q: %w", m.Config, err)
		}
		for _, tag := range m.RepoTags {
			found = append(found, content{tag, d})
		}
	}
	return found, nil
}
