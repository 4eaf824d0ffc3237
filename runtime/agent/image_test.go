package agent_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"headway.dev/headway/runtime/fake"
)

func TestDeletionInterruptsPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New(fake.Config{Missing: func(string) bool { return true }, Delay: func(op string) time.Duration {
			if op == "Pull" {
				return time.Hour
			}
			return 0
		}})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		sleep(time.Second)
		p = p.DeepCopy()
		now, grace := metav1.Now(), int64(0)
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &now, &grace
		s.assign(p)
		synctest.Wait()
		if !s.stopped[p.UID] {
			t.Fatal("a pull holds up a deletion")
		}
	})
}

func TestImagePullBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mended atomic.Bool
		machine := fake.New(fake.Config{Missing: func(string) bool { return true }, Fail: func(op, _ string) error {
			if op == "Pull" && !mended.Load() {
				return errors.New("registry says no")
			}
			return nil
		}})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		p := pod("web")
		s.assign(p)
		synctest.Wait()
		if w := s.state(p, "c0").State.Waiting; w == nil || w.Reason != "ErrImagePull" || w.Message != "registry says no" {
			t.Fatalf("waiting is %+v", w)
		}
		sleep(5 * time.Second)
		if w := s.state(p, "c0").State.Waiting; w == nil || w.Reason != "ImagePullBackOff" {
			t.Fatalf("waiting is %+v", w)
		}
		if n := machine.Calls("Pull"); n != 1 {
			t.Fatalf("%d pulls", n)
		}
		sleep(6 * time.Second)
		if n := machine.Calls("Pull"); n != 2 {
			t.Fatalf("%d pulls", n)
		}
		mended.Store(true)
		sleep(21 * time.Second)
		if s.state(p, "c0").State.Running == nil {
			t.Fatal("the pod does not come up once the registry is mended")
		}
		for _, reason := range []string{"Pulling", "Failed Failed to pull image", "Failed Error: ErrImagePull", "BackOff", "Pulled", "Created", "Started"} {
			if len(s.said(reason)) == 0 {
				t.Fatalf("no event %s in %v", reason, s.events)
			}
		}
	})
}

func TestImageReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New(fake.Config{Missing: func(string) bool { return true }})
		s := newServer(t)
		run(t, s, machine, t.TempDir())
		never, invalid := pod("never"), pod("invalid", "Bad:Name")
		never.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
		s.assign(never, invalid)
		sleep(time.Minute)
		if w := s.state(never, "c0").State.Waiting; w == nil || w.Reason != "ErrImageNeverPull" {
			t.Fatalf("waiting is %+v", w)
		}
		if w := s.state(invalid, "c0").State.Waiting; w == nil || w.Reason != "InvalidImageName" {
			t.Fatalf("waiting is %+v", w)
		}
	})
}
