package dns

import (
	"container/list"
	"fmt"
	"hash/maphash"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of what others' answers may cost and how long they are believed. A
// resolver that is asked may cap TTLs as it likes (RFC 8767, 2308): these keep a
// mistake elsewhere from lasting a day here.
const (
	longestTTL   = time.Hour
	longestNoTTL = 5 * time.Minute
	// failureTTL keeps a storm of the same question off resolvers that fail it; at
	// least a second, says RFC 9520.
	failureTTL   = time.Second
	cacheEntries = 16 << 10
	cacheBytes   = 16 << 20
	cacheLargest = 16 << 10 // of one answer
	cacheShards  = 16
	// entryCost is what an entry takes beside its name and its message.
	entryCost = 256
)

// question is what tells others' answers apart. name is in lower case.
type question struct {
	name   string
	qtype  uint16
	do, cd bool
	ad     bool
}

// String is one for each question; it names flights.
func (q question) String() string {
	return fmt.Sprint(q.name, " ", q.qtype, q.do, q.cd, q.ad)
}

// kept is an answer in wire form, shared by all who get it.
type kept struct {
	wire  []byte
	at    time.Time
	until time.Time // zero: not to be kept
}

// message is the answer as of now: its records are good for what is left of their
// time.
func (k kept) message(now time.Time) (*dns.Msg, error) {
	m := new(dns.Msg)
	if err := m.Unpack(k.wire); err != nil {
		return nil, fmt.Errorf("unpack an answer that was kept: %w", err)
	}
	age := uint32(max(now.Sub(k.at), 0) / time.Second)
	most := uint32(longestTTL / time.Second)
	for _, section := range [][]dns.RR{m.Answer, m.Ns, m.Extra} {
		for _, rr := range section {
			h := rr.Header()
			if h.Rrtype == dns.TypeOPT {
				continue // its TTL is something else
			}
			h.Ttl = sane(h.Ttl)
			h.Ttl = min(h.Ttl, most)
			h.Ttl -= min(age, h.Ttl)
		}
	}
	return m, nil
}

// sane reads a TTL with the highest bit set as 0 (RFC 2181).
func sane(ttl uint32) uint32 {
	if ttl > 1<<31-1 {
		return 0
	}
	return ttl
}

// lifetime is how long an answer may be kept; 0: not at all.
func lifetime(m *dns.Msg) time.Duration {
	limit, least := longestTTL, uint32(1<<31-1)
	for _, rr := range m.Answer {
		least = min(least, sane(rr.Header().Ttl))
	}
	switch {
	case m.Rcode == dns.RcodeServerFailure:
		return failureTTL
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		return 0
	case m.Rcode == dns.RcodeNameError || !answers(m):
		// What says no says in its SOA for how long; without one it is not kept.
		soa := soaOf(m)
		if soa == nil {
			return 0
		}
		limit = longestNoTTL
		least = min(least, sane(soa.Hdr.Ttl), sane(soa.Minttl))
	}
	return min(time.Duration(least)*time.Second, limit)
}

// answers reports whether there is a record of the type that was asked for, and
// not only the aliases before it.
func answers(m *dns.Msg) bool {
	for _, rr := range m.Answer {
		if t := rr.Header().Rrtype; t == m.Question[0].Qtype {
			return true
		}
	}
	return false
}

func soaOf(m *dns.Msg) *dns.SOA {
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return soa
		}
	}
	return nil
}

// cache keeps answers, the last used ones of them, up to its bounds.
type cache struct {
	seed   maphash.Seed
	shards [cacheShards]shard
}

type shard struct {
	mu      sync.Mutex
	entries map[question]*list.Element
	used    list.List // of *cached, the last used first
	bytes   int
}

type cached struct {
	q question
	kept
}

func (c *cached) cost() int { return len(c.wire) + len(c.q.name) + entryCost }

func newCache() *cache {
	c := &cache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].entries = map[question]*list.Element{}
	}
	return c
}

func (c *cache) shard(q question) *shard {
	return &c.shards[maphash.Comparable(c.seed, q)%cacheShards]
}

// get returns what is kept and has not expired.
func (c *cache) get(q question, now time.Time) (kept, bool) {
	s := c.shard(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[q]
	if e == nil {
		return kept{}, false
	}
	found := e.Value.(*cached)
	// A clock that was set back makes an answer look as if it came tomorrow.
	if !now.Before(found.until) || now.Before(found.at) {
		s.remove(e)
		return kept{}, false
	}
	s.used.MoveToFront(e)
	return found.kept, true
}

// put keeps an answer if it may be kept.
func (c *cache) put(q question, k kept) {
	if !k.at.Before(k.until) || len(k.wire) > cacheLargest {
		return
	}
	s := c.shard(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.entries[q]; old != nil {
		s.remove(old)
	}
	fresh := &cached{q, k}
	s.entries[q] = s.used.PushFront(fresh)
	s.bytes += fresh.cost()
	for s.bytes > cacheBytes/cacheShards || s.used.Len() > cacheEntries/cacheShards {
		s.remove(s.used.Back())
	}
}

func (s *shard) remove(e *list.Element) {
	gone := s.used.Remove(e).(*cached)
	delete(s.entries, gone.q)
	s.bytes -= gone.cost()
}

// size of all that is kept.
func (c *cache) size() (entries, bytes int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += s.used.Len()
		bytes += s.bytes
		s.mu.Unlock()
	}
	return entries, bytes
}
