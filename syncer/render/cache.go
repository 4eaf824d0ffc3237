package render

import (
	"container/list"
	"sync"

	"headway.dev/headway/api"
)

// Cache remembers what files and kustomizations gave, by path and content (the
// path stands in every problem and provenance). It keeps at most so many bytes.
// What neither this render nor the one before asked for goes first; when nothing
// like that is left, nothing is added, so that a tree too large for the cache
// still finds a part of itself there. A nil Cache remembers nothing.
type Cache struct {
	mu      sync.Mutex
	max     int
	bytes   int
	render  int // number of the render under way
	entries map[cacheKey]*list.Element
	units   map[unitKey][]cacheKey // what is kept of a kustomization, the newest last
	recent  *list.List             // of *node, the most recent first
	newest  *rendering             // of a whole tree; nil: of none
}

// DefaultCacheBytes holds some 15,000 objects of the usual size.
const DefaultCacheBytes = 16 << 20

// NewCache makes a cache for about max bytes of files; 0 means
// DefaultCacheBytes. What is kept of a file takes several times its size.
func NewCache(max int) *Cache {
	if max <= 0 {
		max = DefaultCacheBytes
	}
	return &Cache{max: max, entries: map[cacheKey]*list.Element{}, units: map[unitKey][]cacheKey{}, recent: list.New()}
}

// cacheKey names what is kept of one file, or of one kustomization with all that
// it read.
type cacheKey struct {
	of        form
	path      string
	hash      string // of the file, or of all facts that the kustomization depends on
	namespace string
}

type form int

const (
	plain     form = iota // a file of manifests
	consumed              // a file that a kustomization uses
	describes             // a kustomization, read
	whole                 // a kustomization with all that it uses, rendered
)

type unitKey struct{ dir, namespace string }

// entry is what a file or a kustomization gave. It is shared by every render and
// must not be changed.
type entry struct {
	manifests     []api.Manifest
	problems      []api.Problem
	warnings      []api.Problem // beside those of the manifests
	foreign       []api.Foreign
	skipped       string
	source        *source
	kustomization *kustomization
	facts         map[string]string // what a kustomization depends on: path → index.fact
	bytes         int
}

type node struct {
	key cacheKey
	entry
	render int // the last that asked for it
}

// overhead is what an entry costs beside its file's bytes.
const overhead = 256

// maxVersions bounds what is kept of one kustomization.
const maxVersions = 4

func (c *Cache) begin() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.render++
}

// last is what was kept of a whole tree; nil when nothing was.
func (c *Cache) last() *rendering {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// keep keeps a whole tree; without one, what there is stays.
func (c *Cache) keep(r *rendering) {
	if c == nil || r == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = r
}

func (c *Cache) get(k cacheKey) (entry, bool) {
	if c == nil || k.hash == "" {
		return entry{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.take(k)
}

func (c *Cache) take(k cacheKey) (entry, bool) {
	el, ok := c.entries[k]
	if !ok {
		return entry{}, false
	}
	c.recent.MoveToFront(el)
	n := el.Value.(*node)
	n.render = c.render
	return n.entry, true
}

// unit finds what a kustomization gave when everything it depends on was as it is
// now, which fact tells.
func (c *Cache) unit(k unitKey, fact func(string) string) (entry, bool) {
	if c == nil {
		return entry{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	versions := c.units[k]
	for i := len(versions) - 1; i >= 0; i-- {
		el, ok := c.entries[versions[i]]
		if ok && holds(el.Value.(*node).facts, fact) {
			return c.take(versions[i])
		}
	}
	return entry{}, false
}

func holds(facts map[string]string, fact func(string) string) bool {
	for p, was := range facts {
		if fact(p) != was {
			return false
		}
	}
	return true
}

func (c *Cache) put(k cacheKey, e entry) {
	if c == nil || k.hash == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.entries[k]; ok {
		c.drop(el)
	}
	for c.bytes+e.bytes+overhead > c.max {
		last := c.recent.Back()
		if last == nil || last.Value.(*node).render >= c.render-1 {
			return
		}
		c.drop(last)
	}
	c.entries[k] = c.recent.PushFront(&node{k, e, c.render})
	c.bytes += e.bytes + overhead
	if k.of == whole {
		u := unitKey{k.path, k.namespace}
		c.units[u] = append(c.units[u], k)
		if len(c.units[u]) > maxVersions {
			c.drop(c.entries[c.units[u][0]])
		}
	}
}

func (c *Cache) drop(el *list.Element) {
	n := el.Value.(*node)
	c.recent.Remove(el)
	delete(c.entries, n.key)
	c.bytes -= n.bytes + overhead
	if n.key.of != whole {
		return
	}
	u := unitKey{n.key.path, n.key.namespace}
	var left []cacheKey
	for _, k := range c.units[u] {
		if k != n.key {
			left = append(left, k)
		}
	}
	if c.units[u] = left; len(left) == 0 {
		delete(c.units, u)
	}
}
