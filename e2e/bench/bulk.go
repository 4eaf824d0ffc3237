package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bulk is what a repository of many objects costs: one file for each. Its first
// apply counts from the start of git push; the others from the moment the server
// has the commit's objects until the applied commit has moved, without git's time.
type bulk struct {
	Objects int     `json:"objects"`
	First   float64 `json:"firstApply"`
	Judge   float64 `json:"firstJudge"`
	Nothing float64 `json:"commitThatChangesNothing"`
	OneFile float64 `json:"commitThatChangesOneFile"`
	Live    float64 `json:"liveRefAfterScale"` // from the write through the API until the live ref has the commit
	Memory  memory  `json:"memory"`            // of headway, after all that
}

// many measures repositories of both sizes, each on a cluster of its own.
func (b *bench) many(ctx context.Context, r *report) error {
	socket := filepath.Join(b.cluster.dir, "containerd", "containerd.sock")
	for _, n := range []int{1_000, 10_000} {
		m, err := b.bulk(ctx, n, socket)
		if err != nil {
			return fmt.Errorf("%d objects: %w", n, err)
		}
		r.Bulk = append(r.Bulk, m)
	}
	return nil
}

func (b *bench) bulk(ctx context.Context, n int, socket string) (m bulk, err error) {
	m.Objects = n
	name := fmt.Sprintf("bulk%d", n)
	c, _, err := startCluster(ctx, b.program, filepath.Join(b.dir, name), socket)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, c.remove()) }()
	repo, err := newRepository(ctx, filepath.Join(b.dir, name+"-work"), c)
	if err != nil {
		return m, err
	}
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%03d/%05d.yaml", i/100, i)] = declared(i, "1")
	}
	for i := range (n + 99) / 100 {
		if err := os.MkdirAll(filepath.Join(repo.dir, fmt.Sprintf("%03d", i)), 0o755); err != nil {
			return m, err
		}
	}
	took, judge, err := c.apply(ctx, repo, files)
	if err != nil {
		return m, err
	}
	m.First, m.Judge = seconds(took.whole), seconds(judge)
	measure := func(change func(i int) map[string]string) (float64, error) {
		var runs []time.Duration
		for i := range b.runs {
			took, _, err := c.apply(ctx, repo, change(i))
			if err != nil {
				return 0, err
			}
			runs = append(runs, took.server)
		}
		return seconds(median(runs)), nil
	}
	if m.Nothing, err = measure(func(i int) map[string]string {
		return map[string]string{"README.md": fmt.Sprintf("number %d\n", i)}
	}); err != nil {
		return m, err
	}
	if m.OneFile, err = measure(func(i int) map[string]string {
		at := 37 * (i + 1)
		return map[string]string{fmt.Sprintf("%03d/%05d.yaml", at/100, at): declared(at, fmt.Sprint(i+2))}
	}); err != nil {
		return m, err
	}
	var runs []time.Duration
	for i := range b.runs {
		took, err := c.drift(ctx, repo, fmt.Sprintf("o%05d", 10*i+9))
		if err != nil {
			return m, err
		}
		runs = append(runs, took)
	}
	m.Live = seconds(median(runs))
	m.Memory, err = process{c.cmd.Process.Pid, "headway"}.memory()
	return m, err
}

// declared is the manifest of the object number i: of ten, seven ConfigMaps, a
// Secret, a ServiceAccount and a Deployment that runs nothing.
func declared(i int, value string) string {
	head := func(version, kind string) string {
		return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata:\n  name: o%05d\n  labels:\n    value: v%s\n", version, kind, i, value)
	}
	switch i % 10 {
	case 7:
		return head("v1", "Secret") + "stringData:\n  password: \"" + value + "\"\n"
	case 8:
		return head("v1", "ServiceAccount")
	case 9:
		return head("apps/v1", "Deployment") + fmt.Sprintf(`spec:
  replicas: 0
  selector:
    matchLabels: {app: o%05[1]d}
  template:
    metadata:
      labels: {app: o%05[1]d}
    spec:
      containers:
        - name: web
          image: headway.local/hello:1
          env: [{name: VALUE, value: "%[2]s"}]
`, i, value)
	}
	return head("v1", "ConfigMap") + "data:\n  value: \"" + value + "\"\n"
}

// applied is how long a commit took: from the start of git push, and from when the
// server had it.
type applied struct{ whole, server time.Duration }

var appliedLine = regexp.MustCompile(`^time=(\S+) .*msg="commit applied"`)

// apply pushes files and waits until their commit is the applied one.
func (c *cluster) apply(ctx context.Context, repo *repository, files map[string]string) (took applied, judge time.Duration, err error) {
	begin, wait, err := repo.push(ctx, files)
	if err != nil {
		return took, 0, err
	}
	if err := wait(); err != nil { // it shows the whole rollout; the times are in the log
		return took, 0, err
	}
	head, err := repo.head(ctx)
	if err != nil {
		return took, 0, err
	}
	line, err := c.await(ctx, `msg="commit applied"`, "commit="+head)
	if err != nil {
		return took, 0, err
	}
	match := appliedLine.FindStringSubmatch(line)
	if match == nil {
		return took, 0, fmt.Errorf("no time in %q", line)
	}
	end, err := time.Parse(time.RFC3339Nano, match[1])
	if err != nil {
		return took, 0, err
	}
	if line, err = c.await(ctx, `msg="ref pushed"`, "to="+head); err != nil {
		return took, 0, err
	}
	moved, judge, err := pushed(line)
	if err != nil {
		return took, 0, err
	}
	return applied{end.Sub(begin), end.Sub(moved.Add(-judge))}, judge, nil
}

// drift scales a Deployment by hand and waits until the live ref tells it.
func (c *cluster) drift(ctx context.Context, repo *repository, name string) (time.Duration, error) {
	before, err := repo.live(ctx)
	if err != nil {
		return 0, err
	}
	scales := c.client.AppsV1().Deployments("default")
	scale, err := scales.GetScale(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	scale.Spec.Replicas = 1
	begin := time.Now()
	if _, err := scales.UpdateScale(ctx, name, scale, metav1.UpdateOptions{}); err != nil {
		return 0, err
	}
	for {
		now, err := repo.live(ctx)
		if err != nil {
			return 0, err
		}
		if now != before {
			return time.Since(begin), c.settle(ctx, repo, now)
		}
	}
}

// settle waits until the live ref is done with a drift: it tells the heal, too.
func (c *cluster) settle(ctx context.Context, repo *repository, last string) error {
	for {
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		now, err := repo.live(ctx)
		if err != nil || now == last {
			return err
		}
		last = now
	}
}

// live is the commit of the live ref.
func (r *repository) live(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "git", "ls-remote", r.remote, "refs/heads/headway/main/live")
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git ls-remote: %w", err)
	}
	hash, _, _ := strings.Cut(string(out), "\t")
	return hash, nil
}

// flat is the ratio of the largest to the smallest repository.
func flat(all []bulk, of func(bulk) float64) float64 {
	if len(all) < 2 || of(all[0]) == 0 {
		return 0
	}
	by := slices.Clone(all)
	slices.SortFunc(by, func(a, b bulk) int { return a.Objects - b.Objects })
	return of(by[len(by)-1]) / of(by[0])
}
