package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// An update of three replicas rolls without a moment at which nobody answers, and
// afterwards only the new version does.
func TestRollingUpdateAlwaysAnswers(t *testing.T) {
	t.Parallel()
	c := probing(t)
	steady := func(word string) string {
		return strings.Replace(web(word, 3), "replicas: 3", "replicas: 3\n  minReadySeconds: 2", 1)
	}
	c.deploy("one", map[string]string{"web.yaml": steady("one")})
	ready := c.followReady("app", "web")

	stop := make(chan struct{})
	var poll sync.WaitGroup
	rounds, seen := 0, map[string]int{}
	var silent []string
	poll.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			words, problem := round(ready.now())
			rounds++
			for _, w := range words {
				seen[w]++
			}
			if len(words) == 0 {
				silent = append(silent, fmt.Sprintf("%s: %s", time.Now().Format(time.StampMilli), problem))
			}
		}
	})
	c.deploy("two", map[string]string{"web.yaml": steady("two")})
	close(stop)
	poll.Wait()
	if len(silent) > 0 {
		t.Errorf("in %d of %d rounds nobody answered:\n%s", len(silent), rounds, strings.Join(silent, "\n"))
	}
	if seen["one"] == 0 || seen["two"] == 0 {
		t.Errorf("the client did not see the change: %v", seen)
	}
	t.Logf("%d rounds, answers %v", rounds, seen)

	c.answers("two", 3)
	if words, problem := round(ready.now()); len(words) != 3 || strings.Join(words, "") != "twotwotwo" {
		t.Errorf("after the update: %v, %s", words, problem)
	}
}

// round asks every pod at once.
func round(pods map[string]string) (words []string, problem string) {
	var mu sync.Mutex
	var all sync.WaitGroup
	problem = fmt.Sprintf("%d pods ready", len(pods))
	for name, ip := range pods {
		all.Go(func() {
			word, err := ask(ip)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				problem += fmt.Sprintf("; %s: %v", name, err)
				return
			}
			words = append(words, word)
		})
	}
	all.Wait()
	return words, problem
}
