package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	defaultPatience = 10 * time.Second
	glance          = 50 * time.Millisecond // for what was waited for already
	maxJobs         = 256                   // that are under way
)

// jobs are calls that nobody can wait for: a file system whose server is down holds
// who asks it for as long as that lasts, and the files of a large volume are many.
// Whoever wants one done waits for a moment, and comes again; it goes on meanwhile, and
// is never begun twice. One that hangs costs its goroutine until the kernel lets go.
type jobs struct {
	patience time.Duration

	mu  sync.Mutex
	all map[string]*job
}

type job struct {
	cancel context.CancelFunc
	done   chan struct{}
	lost   bool // nobody comes for the outcome
	result []Mount
	err    error
}

// errSlow is the error of a job that goes on.
var errSlow = errors.New("not done yet")

// do does one thing for a pod, or goes on waiting for it. stage says what it is, for a
// person who wonders.
func (j *jobs) do(ctx context.Context, uid types.UID, what, stage string, f func(context.Context) ([]Mount, error)) ([]Mount, error) {
	key := string(uid) + "/" + what
	b, working, err := j.find(ctx, key)
	if err != nil {
		return nil, err
	}
	wait := glance
	if working != nil {
		wait = j.patience
		go func() {
			b.result, b.err = f(working)
			b.cancel()
			j.end(key, b)
		}()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, fmt.Errorf("%w: %s", errSlow, stage)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.all[key] == b {
		delete(j.all, key)
	}
	return b.result, b.err
}

// find gives the job of a name: with none there is, a new one, which is to be done with
// the context beside it. That outlives the call, and ends when the job's pod goes.
func (j *jobs) find(ctx context.Context, key string) (b *job, working context.Context, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if b := j.all[key]; b != nil {
		return b, nil, nil
	}
	if len(j.all) >= maxJobs {
		return nil, nil, fmt.Errorf("%d file systems of this machine do not answer; no more are asked", len(j.all))
	}
	if j.all == nil {
		j.all = map[string]*job{}
	}
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b = &job{cancel: cancel, done: make(chan struct{})}
	j.all[key] = b
	return b, working, nil
}

func (j *jobs) end(key string, b *job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b.lost && j.all[key] == b {
		delete(j.all, key)
	}
	close(b.done)
}

// drop forgets what was to be done for a pod.
func (j *jobs) drop(uid types.UID) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, b := range j.all {
		if !strings.HasPrefix(key, string(uid)+"/") {
			continue
		}
		b.lost = true
		b.cancel()
		select {
		case <-b.done:
			delete(j.all, key)
		default:
		}
	}
}
