package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// many is the number of lines that make 10 MB.
const many = 100_000

// other is a Deployment beside web that no rollout concerns.
func other(name string, replicas int) string {
	return strings.ReplaceAll(strings.ReplaceAll(web("steady", replicas), "name: web", "name: "+name), "{app: web}", "{app: "+name+"}")
}

// Killed during a rollout and started again, headway finishes it. Containers that
// were not part of it were not touched, not even one that printed 10 MB while
// nobody was there to read.
func TestR8_KillDuringRollout(t *testing.T) {
	t.Parallel()
	c := probing(t)
	c.deploy("one", map[string]string{
		"web.yaml":    strings.Replace(web("one", 3), "replicas: 3", "replicas: 3\n  minReadySeconds: 1", 1),
		"steady.yaml": other("steady", 2),
		"chatty.yaml": other("chatty", 1),
	})
	steady, chatty := c.lives("app=steady", 2), c.lives("app=chatty", 1)
	old := c.lives("app=web", 3)
	ip := c.pods("app=chatty")[0].Status.PodIP

	c.write(map[string]string{"web.yaml": strings.Replace(web("two", 3), "replicas: 3", "replicas: 3\n  minReadySeconds: 1", 1)})
	commit := c.commit("two")
	pushed := c.hold()
	eventually(t, "the rollout to begin", func() error {
		for _, p := range c.pods("app=web") {
			known := false
			for _, l := range old {
				known = known || strings.HasPrefix(l.pod, p.Name+" ")
			}
			if !known {
				return nil
			}
		}
		return fmt.Errorf("only old pods")
	})
	c.end(syscall.SIGKILL)
	pushed()

	// With its reader's owner dead, the container neither stalls nor loses a line.
	client := http.Client{Timeout: patience}
	began := time.Now()
	resp, err := client.Get(fmt.Sprintf("http://%s:8080/print?n=%d", ip, many))
	if err != nil {
		t.Fatalf("the container stalls while headway is dead: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "printed" {
		t.Fatalf("the container says %q, %v", body, err)
	}
	t.Logf("10 MB printed in %s while headway was dead", time.Since(began))

	c.start()
	c.waitReady()
	c.healthy(commit)
	c.answers("two", 3)
	c.same("after the kill", "app=steady", steady)
	c.same("after the kill", "app=chatty", chatty)
	out := c.kubectl("logs", "deployment/chatty")
	if n, err := lineCount([]byte(out)); err != nil || n != many {
		t.Errorf("the log has %d lines, want %d: %v", n, many, err)
	}
}
