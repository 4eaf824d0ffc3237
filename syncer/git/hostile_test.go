package git

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// packed is one object of a pack: its type and size as they are claimed, what comes
// between them and the content (the base of a delta), and the content.
type packed struct {
	kind   byte
	size   int
	middle []byte
	data   []byte
}

const (
	packCommit = 1
	packTree   = 2
	packBlob   = 3
	packDelta  = 7 // against a base that is named
)

// packOf writes a pack by hand, so that it can lie.
func packOf(t *testing.T, entries ...packed) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("PACK")
	b.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 2), uint32(len(entries))))
	for _, e := range entries {
		c := e.kind<<4 | byte(e.size&15)
		for n := e.size >> 4; ; n >>= 7 {
			if n == 0 {
				b.WriteByte(c)
				break
			}
			b.WriteByte(c | 0x80)
			c = byte(n & 0x7f)
		}
		b.Write(e.middle)
		z := zlib.NewWriter(&b)
		if _, err := z.Write(e.data); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

func objectName(kind string, data []byte) [sha1.Size]byte {
	return sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(data)), data...))
}

// deltaOf is a delta that makes an object of times copies of its base.
func deltaOf(base []byte, times int) []byte {
	d := binary.AppendUvarint(nil, uint64(len(base)))
	d = binary.AppendUvarint(d, uint64(len(base)*times))
	for range times {
		d = append(d, 0x80|0x70, byte(len(base)), byte(len(base)>>8), byte(len(base)>>16))
	}
	return d
}

// TestPackThatWantsMuchMemory pushes packs of a few kilobytes that ask for more
// memory than maxAlloc.
func TestPackThatWantsMuchMemory(t *testing.T) {
	tree := objectName("tree", nil)
	commit := fmt.Appendf(nil, "tree %x\nauthor A <a@example.org> 1700000000 +0000\ncommitter A <a@example.org> 1700000000 +0000\n\nx\n", tree)
	tip := objectName("commit", commit)
	base := make([]byte, 1<<24-1)
	baseName := objectName("blob", base)
	delta := deltaOf(base, maxAlloc/len(base)+1)
	small := deltaOf(base, 2)
	whole := []packed{{kind: packTree}, {kind: packCommit, size: len(commit), data: commit}, {kind: packBlob, size: len(base), data: base}}
	for name, c := range map[string]struct {
		pack []byte
		want string // said to the person who pushes
	}{
		"a delta that copies its base": {packOf(t, append(whole, packed{packDelta, len(delta), baseName[:], delta})...), "attempting to allocate"},
		"a tree of a huge size":        {packOf(t, append(whole, packed{kind: packTree, size: maxAlloc + 1})...), "attempting to allocate"},
		"a commit of a huge size":      {packOf(t, append(whole, packed{kind: packCommit, size: maxAlloc + 1})...), "attempting to allocate"},
		"an honest one":                {packOf(t, append(whole, packed{packDelta, len(small), baseName[:], small})...), "unpack ok"},
	} {
		t.Run(name, func(t *testing.T) {
			h := startHost(t, nil)
			before := snapshot(t, h.config.Dir)
			line := fmt.Sprintf("%040d %x refs/heads/main\x00report-status side-band-64k", 0, tip)
			body := append(fmt.Appendf(nil, "%04x%s0000", len(line)+4, line), c.pack...)
			resp, err := http.Post(h.url+"/git-receive-pack", "application/x-git-receive-pack-request", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			said, err := io.ReadAll(resp.Body)
			if cerr := resp.Body.Close(); err == nil {
				err = cerr
			}
			if err != nil || !strings.Contains(string(said), c.want) {
				t.Errorf("got %v %q, want %q", err, said, c.want)
			}
			taken := c.want == "unpack ok"
			if got := h.refs.get("refs/heads/main"); (got != "") != taken {
				t.Errorf("the key is at %q", got)
			}
			h.stop() // git has ended and removed what it had received
			if after := snapshot(t, h.config.Dir); !taken && after != before {
				t.Errorf("the repository changed:\n%s", after)
			}
		})
	}
}
