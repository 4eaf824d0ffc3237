package simulate_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"headway.dev/headway/simulate"
)

var (
	seed  = flag.Uint64("simulate.seed", 0, "run this seed alone, and print its whole trace")
	runs  = flag.Int("simulate.runs", 0, "how many new seeds; 0: until interrupted")
	nodes = flag.Int("simulate.nodes", 3, "nodes")
	on    = flag.Bool("simulate", false, "run TestOnAndOn")
)

// shared are the decoded files of all runs.
var shared = simulate.NewManifests()

// run simulates one seed, in a bubble of its own.
func run(t *testing.T, seed uint64, o simulate.Options) (r simulate.Result) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "seed-")
	if err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Commits = dir, shared
	synctest.Test(t, func(*testing.T) { r = simulate.New(seed, o).Run() })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return r
}

// sum adds up runs.
type sum struct {
	runs, faults, commits int
	failed                []uint64
	simulated             time.Duration
	checked               map[string]int
	began                 time.Time
}

func (s *sum) add(r simulate.Result) {
	s.runs++
	s.faults += r.Faults
	s.commits += r.Commits
	s.simulated += r.Time
	for rule, n := range r.Checked {
		s.checked[rule] += n
	}
	if r.Failure != "" {
		s.failed = append(s.failed, r.Seed)
	}
}

func (s *sum) String() string {
	took := time.Since(s.began).Seconds()
	var rules []string
	for _, rule := range slices.Sorted(maps.Keys(s.checked)) {
		rules = append(rules, fmt.Sprintf("%s×%d", rule, s.checked[rule]))
	}
	failures := "no failures"
	if len(s.failed) > 0 {
		failures = fmt.Sprintf("%d FAILED: seeds %v", len(s.failed), s.failed)
	}
	return fmt.Sprintf("simulated %d runs, %.1f seeds/s, %.1f simulated hours/s, %d commits, %d faults, rules checked: %s; %s",
		s.runs, float64(s.runs)/took, s.simulated.Hours()/took, s.commits, s.faults, strings.Join(rules, " "), failures)
}

func newSum() *sum { return &sum{checked: map[string]int{}, began: time.Now()} }

func report(t *testing.T, r simulate.Result) {
	t.Helper()
	t.Errorf("seed %d, step %d: %s\n%s\nreplay: make simulate SEED=%d", r.Seed, r.Steps, r.Failure, r.Trace, r.Seed)
}

// A cluster where nothing goes wrong does what the first commit says.
func TestQuiet(t *testing.T) {
	r := run(t, 1, simulate.Options{Nodes: 1, Servers: 1, Quiet: true, Chaos: time.Minute})
	if r.Failure != "" {
		report(t, r)
	}
	if r.Commits != 1 || r.Checked["converges"] != 1 {
		t.Errorf("%d commits, checked %v", r.Commits, r.Checked)
	}
}

// TestSimulate runs the same seeds every time.
func TestSimulate(t *testing.T) {
	n := uint64(200)
	if testing.Short() {
		n = 10
	}
	s := newSum()
	for seed := uint64(1); seed <= n && len(s.failed) < 3; seed++ {
		r := run(t, seed, simulate.Options{})
		s.add(r)
		if r.Failure != "" {
			report(t, r)
		}
	}
	t.Log(s)
	for _, rule := range []string{"R4", "R5", "R6", "R7", "R9", "R10", "R11", "R13", "budget", "quota", "converges"} {
		if s.checked[rule] == 0 {
			t.Errorf("%s was never checked", rule)
		}
	}
}

// The same seed gives the same trace, to the last line.
func TestReplay(t *testing.T) {
	for seed := uint64(1001); seed <= 1006; seed++ {
		var traces [2][]string
		var results [2]simulate.Result
		for i := range results {
			results[i] = run(t, seed, simulate.Options{Trace: func(line string) { traces[i] = append(traces[i], line) }})
		}
		if results[0].Hash == results[1].Hash && results[0].Steps == results[1].Steps {
			continue
		}
		for i, line := range traces[0] {
			if i >= len(traces[1]) || traces[1][i] != line {
				again := "nothing"
				if i < len(traces[1]) {
					again = traces[1][i]
				}
				t.Fatalf("seed %d differs in line %d of %d:\n%s\n%s\nafter\n%s", seed, i, len(traces[0]), line, again, strings.Join(traces[0][max(0, i-5):i], "\n"))
			}
		}
		t.Fatalf("seed %d: the second trace is longer, or its steps differ: %d and %d", seed, results[0].Steps, results[1].Steps)
	}
}

// Each rule finds a wrong decision that is planted, by its own name.
func TestPlantedFaultsAreFound(t *testing.T) {
	const most = 200
	for _, plant := range simulate.Plants() {
		t.Run(string(plant), func(t *testing.T) {
			rule := string(plant)
			if plant == simulate.PlantEnd {
				rule = "converges"
			}
			for seed := uint64(1); seed <= most; seed++ {
				r := run(t, seed, simulate.Options{Plant: plant})
				if r.Failure == "" {
					continue
				}
				if !strings.HasPrefix(r.Failure, rule+":") {
					t.Fatalf("seed %d: %s\n%s", seed, r.Failure, r.Trace)
				}
				t.Logf("%s found after %d seeds, step %d: %s", plant, seed, r.Steps, r.Failure)
				return
			}
			t.Fatalf("%s is not found by %d seeds", plant, most)
		})
	}
}

// TestOnAndOn is make simulate: new seeds until stopped, or as many as asked for, or
// one; in make test the first seed, on another number of nodes than elsewhere.
func TestOnAndOn(t *testing.T) {
	only, nodes := *seed, *nodes
	if !*on {
		only, nodes = 1, 5
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := newSum()
	if only != 0 {
		r := run(t, only, simulate.Options{Nodes: nodes, Trace: func(line string) { fmt.Println(line) }})
		s.add(r)
		if r.Failure != "" {
			t.Errorf("seed %d: %s", r.Seed, r.Failure)
		}
	} else {
		first := rand.Uint64N(1<<40) + 1000
		fmt.Printf("seeds from %d, %d nodes, %d processors; Ctrl-C ends it\n", first, nodes, runtime.NumCPU())
		told := time.Now()
		for i := 0; ctx.Err() == nil && (*runs == 0 || i < *runs) && len(s.failed) < 5; i++ {
			r := run(t, first+uint64(i), simulate.Options{Nodes: nodes})
			s.add(r)
			if r.Failure != "" {
				fmt.Printf("seed %d, step %d: %s\n%s\nreplay: make simulate SEED=%d NODES=%d\n", r.Seed, r.Steps, r.Failure, r.Trace, r.Seed, nodes)
				t.Fail()
			}
			if time.Since(told) > 10*time.Second {
				told = time.Now()
				fmt.Println(s)
			}
		}
	}
	summary = s.String()
}

// summary is the last line of make simulate.
var summary string

func TestMain(m *testing.M) {
	code := m.Run()
	if summary != "" {
		fmt.Println(summary)
	}
	os.Exit(code)
}
