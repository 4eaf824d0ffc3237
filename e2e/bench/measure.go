package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

// bench is one run of all measurements.
type bench struct {
	program, dir string
	runs         int
	idle         time.Duration
	only         *regexp.Regexp // the names of the steps that are taken
	progress     io.Writer

	cluster *cluster
	seen    *observer
	repo    *repository
}

func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, format+"\n", args...)
}

// run measures everything on one cluster, and cold starts on fresh ones beside it.
func (b *bench) run(ctx context.Context) (r *report, err error) {
	r = &report{Machine: describeMachine()}
	info, err := os.Stat(b.program)
	if err != nil {
		return nil, err
	}
	r.Binary = info.Size()
	if err := b.cold(ctx, r); err != nil {
		return nil, fmt.Errorf("cold start: %w", err)
	}
	defer func() { err = errors.Join(err, b.cluster.remove()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if b.seen, err = observe(ctx, b.cluster); err != nil {
		return nil, err
	}
	if b.repo, err = newRepository(ctx, filepath.Join(b.dir, "work"), b.cluster); err != nil {
		return nil, err
	}
	steps := []struct {
		what string
		do   func(context.Context, *report) error
	}{
		{"push until Ready", b.push},
		{"idle", b.rest},
		{"50 pods", b.fifty},
		{"100 pods", b.hundred},
		{"a full node: 250 pods with probes", b.full},
		{"graceful stop", b.graceful},
		{"killed container", b.kill},
		{"rolling update of 10", b.roll},
		{"first request through a Service", b.route},
		{"repositories of 1,000 and of 10,000 objects", b.many},
	}
	for i, step := range steps {
		if !b.only.MatchString(step.what) {
			continue
		}
		b.say("measuring %d of %d: %s", i+1, len(steps), step.what)
		if err := step.do(ctx, r); err != nil {
			return nil, fmt.Errorf("%s: %w\nheadway printed:\n%s", step.what, err, b.cluster.log)
		}
	}
	return r, nil
}

// cold starts clusters on fresh data dirs: the first with its own containerd, which
// is kept for what follows, and others; half of them use the containerd that runs.
func (b *bench) cold(ctx context.Context, r *report) error {
	var with, without []time.Duration
	start := func(name, socket string) (*cluster, time.Duration, error) {
		return startCluster(ctx, b.program, filepath.Join(b.dir, name), socket)
	}
	b.say("measuring: cold start")
	// The program's own pages are read once before: a machine that has just
	// started would measure its disk.
	first, _, err := start("warm", "")
	if err != nil {
		return err
	}
	if err := first.remove(); err != nil {
		return err
	}
	main, took, err := start("main", "")
	if err != nil {
		return err
	}
	with = append(with, took)
	b.cluster = main
	socket := filepath.Join(main.dir, "containerd", "containerd.sock")
	for i := range 2 * (min(b.runs, 3) - 1) {
		own := ""
		if i%2 == 0 {
			own = socket
		}
		c, took, err := start(fmt.Sprintf("cold%d", i), own)
		if err == nil {
			err = c.remove()
		}
		if err != nil {
			return errors.Join(err, main.remove())
		}
		if own == "" {
			with = append(with, took)
		} else {
			without = append(without, took)
		}
	}
	r.ColdStart, r.ColdStartServerOnly = seconds(median(with)), seconds(median(without))
	return nil
}

// manifestFor is a Deployment of the demo's server; what is more of its container are
// lines of YAML.
func manifestFor(app string, replicas int, image string, more ...string) string {
	head := fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  namespace: default
spec:
  replicas: %[2]d
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
        - name: web
          image: headway.local/hello:%[3]s
          ports: [{containerPort: 8080}]
`, app, replicas, image)
	for _, line := range more {
		head += "          " + line + "\n"
	}
	return head
}

// deploy pushes one app and waits until it has rolled out, seen from outside.
func (b *bench) deploy(ctx context.Context, app string, replicas int, image string, more ...string) (begin, end time.Time, err error) {
	begin, wait, err := b.repo.push(ctx, map[string]string{app + ".yaml": manifestFor(app, replicas, image, more...)})
	if err != nil {
		return begin, end, err
	}
	end, err = b.seen.await(ctx, app, func() bool {
		return b.seen.deployments[app] != nil && len(b.seen.of(app)) >= replicas && b.seen.ready(app) >= replicas
	})
	return begin, end, errors.Join(err, wait())
}

// withdraw removes an app and waits until its pods are gone.
func (b *bench) withdraw(ctx context.Context, app string) (begin, end time.Time, err error) {
	begin, wait, err := b.repo.push(ctx, map[string]string{app + ".yaml": ""})
	if err != nil {
		return begin, end, err
	}
	end, err = b.seen.await(ctx, app+" to be gone", func() bool {
		return b.seen.deployments[app] == nil && len(b.seen.of(app)) == 0
	})
	return begin, end, errors.Join(err, wait())
}

var pushedLine = regexp.MustCompile(`^time=(\S+) .*msg="ref pushed".* took=(\S+)`)

// push measures one pod from git push until Ready, and where the time goes.
func (b *bench) push(ctx context.Context, r *report) error {
	// One before counts for nothing: the images may still be on their way in.
	if _, _, err := b.deploy(ctx, "warm", 1, "1"); err != nil {
		return err
	}
	if _, _, err := b.withdraw(ctx, "warm"); err != nil {
		return err
	}
	var runs []split
	for i := range b.runs {
		app := fmt.Sprintf("one-%d", i)
		begin, end, err := b.deploy(ctx, app, 1, "1")
		if err != nil {
			return err
		}
		line, err := b.cluster.await(ctx, `msg="ref pushed"`)
		if err != nil {
			return err
		}
		s, err := b.divide(app, line, begin, end)
		if err != nil {
			return err
		}
		runs = append(runs, s)
		if i == 0 {
			continue // stays, for the idle measurement
		}
		if _, _, err := b.withdraw(ctx, app); err != nil {
			return err
		}
	}
	slices.SortFunc(runs, func(a, b split) int { return int(1e6 * (a.Total - b.Total)) })
	r.Push = runs[len(runs)/2]
	for _, s := range runs {
		r.PushRuns = append(r.PushRuns, s.Total)
	}
	return nil
}

// pushed reads when a ref moved, and how long the push was judged before.
func pushed(line string) (moved time.Time, judge time.Duration, err error) {
	match := pushedLine.FindStringSubmatch(line)
	if match == nil {
		return moved, 0, fmt.Errorf("no times in %q", line)
	}
	if moved, err = time.Parse(time.RFC3339Nano, match[1]); err != nil {
		return moved, 0, err
	}
	judge, err = time.ParseDuration(match[2])
	return moved, judge, err
}

// divide tells where the time of one push went: by the server's line about the
// moved ref, and by when each object was first seen.
func (b *bench) divide(app, line string, begin, end time.Time) (split, error) {
	moved, judge, err := pushed(line)
	if err != nil {
		return split{}, err
	}
	b.seen.mu.Lock()
	defer b.seen.mu.Unlock()
	pods := b.seen.of(app)
	if len(pods) != 1 {
		return split{}, fmt.Errorf("%d pods of %s", len(pods), app)
	}
	d, p := b.seen.deployments[app], pods[0]
	return split{
		Total: seconds(end.Sub(begin)), Git: seconds(moved.Add(-judge).Sub(begin)), Judge: seconds(judge),
		Apply: seconds(d.created.Sub(moved)), Controllers: seconds(p.created.Sub(d.created)),
		Schedule: seconds(p.bound.Sub(p.created)), Start: seconds(p.ready.Sub(p.bound)),
	}, nil
}

// rest measures what the cluster holds and uses with one Deployment that nobody
// asks for anything.
func (b *bench) rest(ctx context.Context, r *report) (err error) {
	r.Idle, err = b.usage(ctx)
	return err
}

// usage is what each part of the cluster uses while nobody asks it for anything, and
// holds after that.
func (b *bench) usage(ctx context.Context) (map[string]idle, error) {
	found, err := b.cluster.processes()
	if err != nil {
		return nil, err
	}
	before := map[process]time.Duration{}
	for _, p := range found {
		if before[p], err = p.cpu(); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	select {
	case <-time.After(b.idle):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	used := map[process]time.Duration{}
	for _, p := range found {
		after, err := p.cpu()
		if err != nil {
			return nil, err
		}
		used[p] = after - before[p]
	}
	elapsed := time.Since(begin)
	parts := map[string]idle{}
	for _, p := range found {
		m, err := p.memory()
		if err != nil {
			return nil, err
		}
		sum := parts[p.part]
		sum.Processes++
		sum.add(m)
		sum.CPU += 100 * float64(used[p]) / float64(elapsed)
		parts[p.part] = sum
	}
	return parts, nil
}

func (b *bench) fifty(ctx context.Context, r *report) error {
	begin, end, err := b.deploy(ctx, "fifty", 50, "1")
	if err != nil {
		return err
	}
	r.Fifty = seconds(end.Sub(begin))
	begin, end, err = b.withdraw(ctx, "fifty")
	r.Delete = seconds(end.Sub(begin))
	return err
}

// kill ends containers from outside and measures until the next one runs. Each is
// of a pod of its own: a second crash of the same would wait for its back-off.
func (b *bench) kill(ctx context.Context, r *report) error {
	if _, _, err := b.deploy(ctx, "victims", b.runs, "1"); err != nil {
		return err
	}
	b.seen.mu.Lock()
	victims := b.seen.of("victims")
	b.seen.mu.Unlock()
	var runs []time.Duration
	for _, p := range victims {
		b.seen.mu.Lock()
		id := p.container
		b.seen.mu.Unlock()
		pid, err := containerPid(id)
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		end, err := b.seen.await(ctx, p.name, func() bool { return p.container != id && !p.ready.IsZero() })
		if err != nil {
			return err
		}
		runs = append(runs, end.Sub(begin))
	}
	r.Kill = seconds(median(runs))
	_, _, err := b.withdraw(ctx, "victims")
	return err
}

// roll measures an update of ten with the default strategy, until the Deployment
// says that the new ones are available and the old ones are no longer counted.
func (b *bench) roll(ctx context.Context, r *report) error {
	if _, _, err := b.deploy(ctx, "roll", 10, "1"); err != nil {
		return err
	}
	if _, err := b.seen.await(ctx, "roll", func() bool { return b.seen.deployments["roll"].rolled }); err != nil {
		return err
	}
	b.seen.mu.Lock()
	old := b.seen.of("roll")
	b.seen.mu.Unlock()
	begin, wait, err := b.repo.push(ctx, map[string]string{"roll.yaml": manifestFor("roll", 10, "2")})
	if err != nil {
		return err
	}
	end, err := b.seen.await(ctx, "the update", func() bool {
		fresh := slices.DeleteFunc(b.seen.of("roll"), func(p *pod) bool { return slices.Contains(old, p) || p.ready.IsZero() })
		return len(fresh) == 10 && b.seen.deployments["roll"].rolled
	})
	if err := errors.Join(err, wait()); err != nil {
		return err
	}
	r.Roll = seconds(end.Sub(begin))
	_, _, err = b.withdraw(ctx, "roll")
	return err
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Second)
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}
