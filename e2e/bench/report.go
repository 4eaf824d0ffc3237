package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// report is what one run found: times in seconds, sizes in bytes, processor time in
// percent of one core.
type report struct {
	Machine             string          `json:"machine"`
	Push                split           `json:"pushToReady"`
	PushRuns            []float64       `json:"pushToReadyRuns"`
	Fifty               float64         `json:"fiftyPodsReady"`
	Delete              float64         `json:"fiftyPodsDeleted"`
	Hundred             float64         `json:"hundredPodsReady"`
	Full                full            `json:"fullNode"`
	Graceful            graceful        `json:"gracefulStop"`
	Kill                float64         `json:"killToRunning"`
	Roll                float64         `json:"rollingUpdateOfTen"`
	Routed              float64         `json:"readyToRouted"`
	ColdStart           float64         `json:"coldStart"`
	ColdStartServerOnly float64         `json:"coldStartWithContainerdRunning"`
	Idle                map[string]idle `json:"idle"`
	Binary              int64           `json:"binary"`
	Bulk                []bulk          `json:"bulk"` // by size
}

// split is where the time of a push went.
type split struct {
	Total       float64 `json:"total"`
	Git         float64 `json:"git"`
	Judge       float64 `json:"judge"`
	Apply       float64 `json:"apply"`
	Controllers float64 `json:"controllers"`
	Schedule    float64 `json:"schedule"`
	Start       float64 `json:"containerStart"`
}

// idle is what the processes of one part hold and use.
type idle struct {
	memory
	Processes int     `json:"processes"`
	CPU       float64 `json:"cpu"`
}

// ours is Headway without containerd, all is with it and its shims.
func (r *report) ours() idle { return sum(r.Idle, "headway", "keeper") }
func (r *report) all() idle  { return sum(r.Idle, "headway", "keeper", "containerd", "shims") }

func sum(of map[string]idle, parts ...string) idle {
	var s idle
	for _, p := range parts {
		s.add(of[p].memory)
		s.Processes += of[p].Processes
		s.CPU += of[p].CPU
	}
	return s
}

// perHundred is how much more parts of the cluster hold and use for each 100 pods of the
// full node.
func (r *report) perHundred(parts ...string) idle {
	if r.Full.Pods == 0 || r.Idle == nil { // one of the two was not measured
		return idle{}
	}
	few, many, hundreds := sum(r.Idle, parts...), sum(r.Full.Idle, parts...), float64(r.Full.Pods)/100
	return idle{
		memory: memory{
			Anonymous: int64(float64(many.Anonymous-few.Anonymous) / hundreds), Pss: int64(float64(many.Pss-few.Pss) / hundreds),
		},
		CPU: (many.CPU - few.CPU) / hundreds,
	}
}

// line is one line of the table. A zero means that there is no such figure, or that it
// was not measured.
type line struct {
	what                            string
	value, target, kubernetes, moby float64
	unit                            string
	digits                          int
}

const mb = 1e6

// lines holds the figures of Kubernetes 1.36 and Docker Swarm 29, measured on this
// kind of machine when it had nothing else to do.
func (r *report) lines() []line {
	ours, all := r.ours(), r.all()
	ours100, all100 := r.perHundred("headway", "keeper"), r.perHundred("headway", "keeper", "containerd", "shims")
	return []line{
		{"push → Ready, one pod (Kubernetes: kubectl apply → Ready)", r.Push.Total, 0.3, 0.35, 0.41, "s", 2},
		{"50 pods → all Ready", r.Fifty, 2.5, 7.7, 4.3, "s", 2},
		{"delete of the 50", r.Delete, 2, 6.2, 5.4, "s", 2},
		{"100 pods → all Ready", r.Hundred, 0, 0, 0, "s", 2},
		{"pods started per second, while a node fills with 250", r.Full.Started, 0, 0, 0, "/s", 1},
		{"pods deleted per second, while it empties", r.Full.Deleted, 0, 0, 0, "/s", 1},
		{"graceful stop, the container ends at once", r.Graceful.AtOnce, 0, 0, 0, "s", 3},
		{"graceful stop, preStop of sleep 1 s: over that second", r.Graceful.Sleep, 0, 0, 0, "s", 3},
		{"graceful stop, preStop of a program that ends at once", r.Graceful.Exec, 0, 0, 0, "s", 3},
		{"kill a container → running again", r.Kill, 0.2, 1.0, 0.61, "s", 2},
		{"rolling update of 10", r.Roll, 2, 3.6, 16, "s", 2},
		{"Ready → first request through a Service", r.Routed, 0, 0, 0, "s", 3},
		{"cold start → node Ready, containerd's start included", r.ColdStart, 1.5, 5.3, 0, "s", 2},
		{"cold start → node Ready, containerd running already", r.ColdStartServerOnly, 0, 0, 0, "s", 2},
		{"memory, anonymous: ours", float64(ours.Anonymous) / mb, 90, 288, 45, "MB", 0},
		{"memory, Pss (others: resident): ours", float64(ours.Pss) / mb, 200, 626, 162, "MB", 0},
		{"memory, anonymous: with containerd and shims", float64(all.Anonymous) / mb, 0, 0, 0, "MB", 0},
		{"memory, Pss: with containerd and shims", float64(all.Pss) / mb, 0, 0, 0, "MB", 0},
		{"idle processor, % of a core: ours", ours.CPU, 1, 5, 0.55, "%", 2},
		{"idle processor, % of a core: with containerd and shims", all.CPU, 0, 0, 0, "%", 2},
		{"idle processor per 100 pods with two HTTP probes every 10 s, % of a core: ours", ours100.CPU, 0, 0, 0, "%", 2},
		{"idle processor per 100 such pods: with containerd and shims", all100.CPU, 0, 0, 0, "%", 2},
		{"memory per such pod, anonymous: ours", float64(ours100.Anonymous) / 100 / mb, 0, 0, 0, "MB", 2},
		{"memory per such pod, anonymous: with containerd and shims", float64(all100.Anonymous) / 100 / mb, 0, 0, 0, "MB", 2},
		{"binary, stripped", float64(r.Binary) / mb, 150, 0, 0, "MB", 0},
	}
}

func (r *report) markdown(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s: %s.\n\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), r.Machine)
	b.WriteString("| what | Headway | target | Kubernetes 1.36 | Docker Swarm 29 |\n|---|---:|---:|---:|---:|\n")
	for _, l := range r.lines() {
		fmt.Fprintf(&b, "| %s | **%s** | %s | %s | %s |\n", l.what, l.figure(l.value), l.beside(l.target), l.beside(l.kubernetes), l.beside(l.moby))
	}
	b.WriteString("\nIn parentheses: that figure divided by Headway's; above 1 Headway needs less.\n")
	s := r.Push
	b.WriteString("\n| push → Ready, the median run | s |\n|---|---:|\n")
	for _, part := range []struct {
		what string
		s    float64
	}{
		{"push: git, until the server has the objects", s.Git},
		{"judge: decode, validate, plan, move the ref", s.Judge},
		{"apply: until the Deployment is there", s.Apply},
		{"controllers: until the pod is there", s.Controllers},
		{"schedule: until it has a node", s.Schedule},
		{"container start: until it is Ready", s.Start},
	} {
		fmt.Fprintf(&b, "| %s | %.3f |\n", part.what, part.s)
	}
	fmt.Fprintf(&b, "\nAll runs: %.2f s.\n", r.PushRuns)
	b.WriteString("\n| idle, by part | processes | anonymous MB | Pss MB | % of a core |\n|---|---:|---:|---:|---:|\n")
	byPart(&b, r.Idle)
	fmt.Fprintf(&b, "\n| %d more pods, probed, by part | processes | anonymous MB | Pss MB | %% of a core |\n|---|---:|---:|---:|---:|\n", r.Full.Pods)
	byPart(&b, r.Full.Idle)
	r.many(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func byPart(b *strings.Builder, parts map[string]idle) {
	for _, part := range []string{"headway", "keeper", "containerd", "shims"} {
		i := parts[part]
		fmt.Fprintf(b, "| %s | %d | %.0f | %.0f | %.2f |\n", part, i.Processes, float64(i.Anonymous)/mb, float64(i.Pss)/mb, i.CPU)
	}
}

// many adds the table about large repositories.
func (r *report) many(b *strings.Builder) {
	b.WriteString("\n| a repository of | 1,000 objects | 10,000 objects | ratio | aim for 10,000 |\n|---|---:|---:|---:|---:|\n")
	for _, row := range []struct {
		what, aim string
		of        func(bulk) float64
		format    string
	}{
		{"first apply, from git push", "5 s", func(m bulk) float64 { return m.First }, "%.2f s"},
		{"of it, judging", "", func(m bulk) float64 { return m.Judge }, "%.2f s"},
		{"a commit that changes nothing we read", "0.1 s", func(m bulk) float64 { return m.Nothing }, "%.3f s"},
		{"a commit that changes one file", "as for 1,000", func(m bulk) float64 { return m.OneFile }, "%.3f s"},
		{"kubectl scale → commit on the live ref", "", func(m bulk) float64 { return m.Live }, "%.3f s"},
		{"memory of headway, anonymous", "", func(m bulk) float64 { return float64(m.Memory.Anonymous) / mb }, "%.0f MB"},
	} {
		fmt.Fprintf(b, "| %s |", row.what)
		for _, m := range r.Bulk {
			fmt.Fprintf(b, " **"+row.format+"** |", row.of(m))
		}
		fmt.Fprintf(b, " %.1f | %s |\n", flat(r.Bulk, row.of), row.aim)
	}
}

func (l line) figure(v float64) string {
	if v == 0 {
		return "–" // not measured
	}
	return fmt.Sprintf("%.*f %s", l.digits, v, l.unit)
}

// beside is a figure to compare with, and how many times Headway's it is.
func (l line) beside(v float64) string {
	if v == 0 {
		return "–"
	}
	if l.value == 0 {
		return l.figure(v)
	}
	return fmt.Sprintf("%s (%.1f×)", l.figure(v), v/l.value)
}

// describeMachine says what the figures were measured on, and how busy it was.
func describeMachine() string {
	text := fmt.Sprintf("%s/%s, %d cores", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.Lines(string(data)) {
			if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				text += " (" + strings.TrimSpace(value) + ")"
				break
			}
		}
	}
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		one, _, _ := strings.Cut(string(data), " ")
		text += ", load before it began " + one
	}
	return text
}
