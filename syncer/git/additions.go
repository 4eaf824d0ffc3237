package git

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// fewObjects is how many new objects are stored one by one; more become a pack,
// which costs the same three syncs of the disk however many there are.
const fewObjects = 48

// additions collects objects that are not in the repository yet, as the entries
// of a pack. The zero value is ready.
type additions struct {
	seen    map[string]struct{}
	trees   map[string]rawTree // those among them, to be read again
	entries bytes.Buffer
	packer  *zlib.Writer // to entries, or nil; a new one for each object would be a megabyte
}

// add takes one object and returns its name.
func (a *additions) add(kind string, content []byte) (hash string) {
	hash = hashOf(kind, content)
	if _, ok := a.seen[hash]; ok {
		return hash
	}
	if a.seen == nil {
		a.seen = map[string]struct{}{}
	}
	a.seen[hash] = struct{}{}

	// The head of an entry: three bits of type and the size, seven bits a byte
	// but four in the first.
	types := map[string]byte{"commit": 1, "tree": 2, "blob": 3}
	size := uint64(len(content))
	b := types[kind]<<4 | byte(size&0x0f)
	for size >>= 4; size > 0; size >>= 7 {
		a.entries.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	a.entries.WriteByte(b)
	if a.packer == nil {
		a.packer, _ = zlib.NewWriterLevel(&a.entries, zlib.BestSpeed) // a level that there is
	}
	a.packer.Reset(&a.entries)
	_, _ = a.packer.Write(content) // a buffer takes everything
	_ = a.packer.Close()
	return hash
}

// addTree takes one tree object.
func (a *additions) addTree(t rawTree) (hash string) {
	hash = a.add("tree", t.encode())
	if a.trees == nil {
		a.trees = map[string]rawTree{}
	}
	a.trees[hash] = slices.Clone(t)
	return hash
}

// hashOf is git's name of an object.
func hashOf(kind string, content []byte) string {
	sum := sha1.New()
	fmt.Fprintf(sum, "%s %d\x00", kind, len(content))
	sum.Write(content)
	return hex.EncodeToString(sum.Sum(nil))
}

// pack returns the objects as a pack.
func (a *additions) pack() []byte {
	out := make([]byte, 0, a.entries.Len()+32)
	out = append(out, "PACK"...)
	out = binary.BigEndian.AppendUint32(out, 2)
	out = binary.BigEndian.AppendUint32(out, uint32(len(a.seen)))
	out = append(out, a.entries.Bytes()...)
	sum := sha1.Sum(out)
	return append(out, sum[:]...)
}

// store writes the objects. Git checks their form and that all they refer to is
// there, and returns when the disk has them.
func (r *Repository) store(ctx context.Context, a *additions) error {
	if len(a.seen) == 0 {
		return nil
	}
	pack := a.pack()
	asPack := []string{"index-pack", "--stdin", "--strict"}
	how := [][]string{asPack}
	if len(a.seen) <= fewObjects {
		// Beside a gc that removes an empty folder of loose objects at that moment
		// git cannot write one; the folder of packs is always there.
		how = [][]string{{"unpack-objects", "-q", "--strict"}, asPack}
	}
	var err error
	for _, args := range how {
		if _, err = r.program.run(ctx, bytes.NewReader(pack), args...); err == nil {
			return nil
		}
	}
	return fmt.Errorf("store %d objects: %w", len(a.seen), err)
}
