package event

import "time"

// Bounds of what a recorder writes. An object's are Kubernetes' own.
const (
	objectBurst  = 25
	objectRefill = 5 * time.Minute
	totalBurst   = 1000
	totalRefill  = 50 * time.Millisecond
	maxBuckets   = 4096
)

// bucket holds tokens that come back one per refill.
type bucket struct {
	tokens float64
	at     time.Time
}

func (b *bucket) fill(now time.Time, burst float64, refill time.Duration) {
	if b.at.IsZero() {
		b.tokens = burst
	} else if d := now.Sub(b.at); d > 0 {
		b.tokens = min(burst, b.tokens+float64(d)/float64(refill))
	}
	b.at = now
}

// limits is a bucket per object and one over all of them.
type limits struct {
	total   bucket
	objects map[string]*bucket
}

// take takes a token for an object, if there is one.
func (l *limits) take(object string, now time.Time) bool {
	l.total.fill(now, totalBurst, totalRefill)
	b := l.objects[object]
	if b == nil {
		l.forget(now)
		b = &bucket{}
		l.objects[object] = b
	}
	b.fill(now, objectBurst, objectRefill)
	if b.tokens < 1 || l.total.tokens < 1 {
		return false
	}
	b.tokens--
	l.total.tokens--
	return true
}

// giveBack puts a token back that was taken for nothing.
func (l *limits) giveBack(object string) {
	l.total.tokens = min(totalBurst, l.total.tokens+1)
	if b := l.objects[object]; b != nil {
		b.tokens = min(objectBurst, b.tokens+1)
	}
}

// forget makes room for one more object: full buckets are as good as none; if
// that is not enough, everything is forgotten, and the total still bounds.
func (l *limits) forget(now time.Time) {
	if len(l.objects) < maxBuckets && l.objects != nil {
		return
	}
	for object, b := range l.objects {
		if b.fill(now, objectBurst, objectRefill); b.tokens >= objectBurst {
			delete(l.objects, object)
		}
	}
	if len(l.objects) >= maxBuckets || l.objects == nil {
		l.objects = map[string]*bucket{}
	}
}
