package store

import (
	"fmt"
	"runtime"
	"testing"

	"headway.dev/headway/api"
	corev1 "k8s.io/api/core/v1"
)

const fleet = 10_000

func fleetCache(b *testing.B) *cache {
	c, k := newCache(), testCodec(b)
	for n := range fleet {
		obj := decoded(b, k, encoded(b, k, templated(n)))
		c.set(KeyOf(obj), obj)
	}
	return c
}

// BenchmarkDecodeMemory reports what one of 10,000 pods of a template costs in
// memory once it is in the cache.
func BenchmarkDecodeMemory(b *testing.B) {
	for b.Loop() {
		k := testCodec(b)
		entries := make([]Entry, fleet)
		for n := range entries {
			entries[n] = encoded(b, k, templated(n))
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		c := newCache()
		for _, e := range entries {
			key, kind, _ := ParsePath(e.Key)
			obj, err := k.decode(kind, e)
			if err != nil {
				b.Fatal(err)
			}
			c.set(key, obj)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/fleet, "B/pod")
		b.ReportMetric(float64(len(entries[0].Value)), "encoded-B/pod")
		runtime.KeepAlive(c)
		runtime.KeepAlive(entries)
	}
}

func BenchmarkDecodePod(b *testing.B) {
	k := testCodec(b)
	e := encoded(b, k, templated(1))
	b.ReportAllocs()
	for b.Loop() {
		decoded(b, k, e)
	}
}

func BenchmarkGet(b *testing.B) {
	c := fleetCache(b)
	keys := make([]Key, fleet)
	for n := range keys {
		keys[n] = KeyOf(templated(n))
	}
	n := 0
	for b.Loop() {
		if c.Get(keys[n%fleet]) == nil {
			b.Fatal("missing")
		}
		n++
	}
}

func BenchmarkList(b *testing.B) {
	c := fleetCache(b)
	b.ReportAllocs()
	for b.Loop() {
		if len(c.List(api.Pods(), "")) != fleet {
			b.Fatal("missing")
		}
	}
}

// BenchmarkListAfterChange is a status update and a list, in turn: the worst case
// of the copy on write.
func BenchmarkListAfterChange(b *testing.B) {
	c := fleetCache(b)
	obj := api.Object(templated(fleet / 2))
	key := KeyOf(obj)
	b.ReportAllocs()
	for b.Loop() {
		c.set(key, obj)
		if len(c.List(api.Pods(), "")) != fleet {
			b.Fatal("missing")
		}
	}
}

func BenchmarkSet(b *testing.B) {
	c := fleetCache(b)
	pods := make([]*corev1.Pod, 1000)
	keys := make([]Key, len(pods))
	for n := range pods {
		pods[n] = templated(n)
		keys[n] = KeyOf(pods[n])
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		c.set(keys[n%len(pods)], pods[n%len(pods)])
		n++
	}
	if got := len(c.OnNode(fmt.Sprintf("node-%03d", 1))); got != fleet/100 {
		b.Fatalf("%d pods on the node", got)
	}
}
