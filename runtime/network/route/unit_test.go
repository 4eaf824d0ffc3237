package route

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
	"sigs.k8s.io/knftables"
)

// Keys and values are read from the kernel as they were written, and from text.
func TestWords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := set(rapid.IntRange(0, int(setCount)-1).Draw(rt, "set"))
		shape := s.shape()
		words := drawWords(rt, shape.key)
		k := key{s, words[0], words[1], words[2]}
		if got := parseWords(shape.key, k.text()); got != words {
			rt.Errorf("%v was written as %v", words, k.text())
		}
		data := encode(shape.key, words[:len(shape.key)]...)
		if got, ok := decode(shape.key, data); !ok || got != words {
			rt.Errorf("%v was encoded as %v", words, data)
		}
	})
}

func drawWords(rt *rapid.T, fields []field) (words [3]uint32) {
	for i, f := range fields {
		switch f {
		case protocol:
			words[i] = rapid.SampledFrom([]uint32{tcp, udp, sctp}).Draw(rt, "protocol")
		case port:
			words[i] = rapid.Uint32Range(0, 0xffff).Draw(rt, "port")
		default:
			words[i] = rapid.Uint32().Draw(rt, "word")
		}
	}
	return words
}

func TestChainNames(t *testing.T) {
	for _, v := range []value{{a: 1}, {a: 1000}, {a: 3, b: 10800}, {b: 7}} {
		if got := parseChain(chainOf(v)); got != v {
			t.Errorf("%s is read as %v", chainOf(v), got)
		}
	}
	for _, name := range []string{"", "spread-", "spread-0", "spread-01", "spread-1-2", "affine-1", "affine-0-1", "stick-0", "input", "spread-99999999999"} {
		if got := parseChain(name); got.a != unknown {
			t.Errorf("%q is read as %v", name, got)
		}
	}
}

// What another program put into our sets is read without harm.
func FuzzElement(f *testing.F) {
	f.Add(uint8(inner), []byte{16, 0, 1, 0x80, 12, 0, 1, 0, 10, 43, 0, 1, 6, 0, 0, 0})
	f.Add(uint8(groups), []byte{8, 0, 2, 0x80, 4, 0, 2, 0x80})
	f.Add(uint8(slots), bytes.Repeat([]byte{4, 0, 1, 0}, 9))
	f.Fuzz(func(t *testing.T, s uint8, data []byte) {
		of := set(s % uint8(setCount))
		k, v, ok := element(of, of.shape(), data)
		if ok && k.set != of {
			t.Errorf("%v %v", k, v)
		}
		for range attributes(data) {
			t.Logf("an attribute")
		}
	})
}

// Where names have the same hash, everybody still has a number of his own, and
// keeps it while others come and go.
func TestNumbersThatMeet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := newNaming[string](3)
		held := map[string]uint32{}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			who := fmt.Sprint("name", rapid.IntRange(0, 20).Draw(rt, "who"))
			if number, ok := held[who]; ok && rapid.Bool().Draw(rt, "free") {
				n.free(number)
				delete(held, who)
				continue
			}
			if len(held) == 8 {
				continue
			}
			number := n.get(who)
			if before, ok := held[who]; ok && before != number {
				rt.Fatalf("%s had %x and has %x", who, before, number)
			}
			for other, has := range held {
				if other != who && has == number {
					rt.Fatalf("%s and %s have %x", who, other, number)
				}
			}
			held[who] = number
		}
		if len(n.holder) != len(held) || len(n.moved) > len(held) {
			rt.Errorf("%d numbers are held by %d", len(n.holder), len(held))
		}
	})
}

// countingReader is a kernel that somebody else writes to all the time.
type countingReader struct {
	fakeReader
	observes int
	slow     time.Duration
}

func (c *countingReader) generation() (uint32, error) {
	c.gen += 5
	return c.gen, nil
}

func (c *countingReader) observe() (*observed, error) {
	c.observes++
	time.Sleep(c.slow) // of the bubble's clock
	return c.fakeReader.observe()
}

// However often others write, comparing takes at most a hundredth of the time.
func TestComparingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := knftables.NewFake(knftables.IPv4Family, "test")
		k := &countingReader{fakeReader: fakeReader{fake: fake}, slow: time.Second}
		cfg := testConfig(t, "test")
		cfg.Bridge = ""
		r := newRouter(cfg, fake, k)
		r.SetService(testService("web", "10.43.0.10"))
		r.SetSlice(testSlice("web", 8080, ready("10.42.0.2")))
		done := make(chan error, 1)
		go func() { done <- r.Run(t.Context()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if k.observes != 0 {
			t.Error("looked before the first Sync")
		}
		if err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if k.observes < 30 || k.observes > 37 {
			t.Errorf("%d comparisons of a second in an hour", k.observes)
		}
	})
}
