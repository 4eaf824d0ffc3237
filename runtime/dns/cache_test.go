package dns

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

func TestHowLongAnswersAreKept(t *testing.T) {
	const soa = "example.org. 600 IN SOA a. b. 1 2 3 4 30"
	for name, c := range map[string]struct {
		reply func(context.Context, string, *dns.Msg) (*dns.Msg, error)
		want  time.Duration
	}{
		"as long as it says":        {replies(www), time.Minute},
		"the shortest counts":       {replies("www.example.org. 60 IN CNAME a.example.org.", "a.example.org. 7 IN A 192.0.2.80"), 7 * time.Second},
		"not longer than an hour":   {replies("www.example.org. 86400 IN A 192.0.2.80"), time.Hour},
		"zero":                      {replies("www.example.org. 0 IN A 192.0.2.80"), 0},
		"negative as RFC 2181":      {replies("www.example.org. 4294967295 IN A 192.0.2.80"), 0},
		"no such name":              {code(dns.RcodeNameError, soa), 30 * time.Second},
		"no such name, SOA's TTL":   {code(dns.RcodeNameError, "example.org. 9 IN SOA a. b. 1 2 3 4 30"), 9 * time.Second},
		"no such name, long":        {code(dns.RcodeNameError, "example.org. 86400 IN SOA a. b. 1 2 3 4 86400"), 5 * time.Minute},
		"no such name, no SOA":      {code(dns.RcodeNameError), 0},
		"no data":                   {replies(soa), 30 * time.Second},
		"no data, no SOA":           {replies(), 0},
		"an alias without data":     {replies("www.example.org. 20 IN CNAME a.example.org.", soa), 20 * time.Second},
		"a failure":                 {code(dns.RcodeServerFailure), failureTTL},
		"a refusal":                 {code(dns.RcodeRefused), 0},
		"an alias, no SOA, no data": {replies("www.example.org. 20 IN CNAME a.example.org."), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, r := newForward(t, c.reply, c.reply)
				s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
				r.calls()
				if c.want > 0 {
					time.Sleep(c.want - time.Millisecond)
					m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
					wants(t, r)
					for _, rr := range m.Answer {
						if ttl := time.Duration(rr.Header().Ttl) * time.Second; ttl > time.Hour || ttl <= 0 {
							t.Errorf("TTL of %v", rr)
						}
					}
					time.Sleep(time.Millisecond)
				}
				s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
				if len(r.calls()) == 0 {
					t.Errorf("kept for longer than %v", c.want)
				}
			})
		})
	}
}

func TestTTLsCountDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newForward(t, replies("www.example.org. 86400 IN A 192.0.2.80"), refused)
		for _, c := range []struct {
			after time.Duration
			want  uint32
		}{{0, 3600}, {90 * time.Second, 3510}, {3509 * time.Second, 1}} {
			time.Sleep(c.after)
			m := s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
			if got := m.Answer[0].Header().Ttl; got != c.want {
				t.Errorf("TTL %d, want %d", got, c.want)
			}
		}
	})
}

func TestClockThatIsSetBack(t *testing.T) {
	now := time.Unix(10000, 0)
	s, r := newForward(t, replies(www), refused)
	s.forward.now = func() time.Time { return now }
	s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
	now = now.Add(-time.Hour)
	r.calls()
	s.ask(t, questionFor("www.example.org.", dns.TypeA), false)
	wants(t, r, first+" udp www.example.org.")
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache()
	now := time.Unix(0, 0)
	big := make([]byte, cacheLargest)
	for i := range 4 * cacheEntries {
		size := 100
		if i%8 == 0 {
			size = cacheLargest
		}
		c.put(question{name: fmt.Sprint(i)}, kept{wire: big[:size], at: now, until: now.Add(time.Hour)})
	}
	entries, bytes := c.size()
	if entries > cacheEntries || bytes > cacheBytes || entries < cacheShards {
		t.Errorf("%d entries, %d bytes", entries, bytes)
	}
	c.put(question{name: "too long"}, kept{wire: make([]byte, cacheLargest+1), at: now, until: now.Add(time.Hour)})
	if _, ok := c.get(question{name: "too long"}, now); ok {
		t.Error("an answer that is too long is kept")
	}
	// What is used stays.
	c = newCache()
	for i := range 2 * cacheEntries {
		c.put(question{name: fmt.Sprint(i)}, kept{at: now, until: now.Add(time.Hour)})
		if _, ok := c.get(question{name: "0"}, now); !ok {
			t.Fatalf("what was used last is gone after %d", i)
		}
	}
	sum := 0
	for i := range c.shards {
		for _, e := range c.shards[i].entries {
			sum += e.Value.(*cached).cost()
		}
	}
	if _, bytes := c.size(); bytes != sum {
		t.Errorf("%d bytes counted, %d there", bytes, sum)
	}
}
