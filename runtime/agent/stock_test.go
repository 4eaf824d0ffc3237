package agent_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"headway.dev/headway/runtime/fake"
)

// The Node shows which images are there, and is sent for them only when they change.
func TestTheNodeShowsItsImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sick atomic.Bool
		machine := fake.New(fake.Config{
			Missing: func(string) bool { return true },
			Size:    func(image string) int64 { return int64(len(image)) << 20 },
			Fail: func(op, _ string) error {
				if op == "Images" && sick.Load() {
					return errors.New("the content store is away")
				}
				return nil
			},
		})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		synctest.Wait()
		shown := func() (string, int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			var names []string
			for _, i := range s.stocked[len(s.stocked)-1] {
				names = append(names, i.Names[0])
			}
			return strings.Join(names, " "), len(s.stocked)
		}
		if got, _ := shown(); got != "" {
			t.Errorf("an empty machine shows %q", got)
		}
		s.assign(pod("a", "web:1"))
		sleep(time.Minute)
		if got, _ := shown(); got != "web:1" {
			t.Errorf("after the first pull: %q", got)
		}
		s.assign(pod("b", "larger:1"))
		sleep(time.Minute)
		got, sent := shown()
		if got != "larger:1 web:1" {
			t.Errorf("the largest first: %q", got)
		}
		sleep(time.Hour)
		if _, now := shown(); now != sent {
			t.Errorf("%d Nodes were sent, and nothing changed", now-sent)
		}
		sick.Store(true) // what was shown stays
		s.assign(pod("c", "third:1"))
		sleep(time.Hour)
		if got, now := shown(); got != "larger:1 web:1" || now != sent {
			t.Errorf("while they cannot be listed: %q", got)
		}
		sick.Store(false)
		sleep(10 * time.Minute)
		if got, _ := shown(); got != "larger:1 third:1 web:1" {
			t.Errorf("when they can again: %q", got)
		}
		if s.ready != corev1.ConditionTrue {
			t.Errorf("ready: %s", s.ready)
		}
	})
}
