package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/fake"
)

// A full disk loses the images that nothing uses, the oldest first, and no other; the
// Node shows it.
func TestImagesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		machine := fake.New(fake.Config{
			Missing: func(string) bool { return true },
			Size:    func(string) int64 { return 200 },
			Kept:    func(image string) bool { return image == "kept:1" },
			Disk:    1000,
			Programs: func(s agent.ContainerSpec) fake.Program {
				return fake.Program{}
			},
		})
		s := newServer(t)
		a := run(t, s, machine, t.TempDir())
		for _, name := range []string{"kept:1", "first:1", "second:1"} {
			p := pod(name[:len(name)-2], name)
			s.assign(p)
			sleep(time.Minute)
			s.live <- unsetPod(p)
			sleep(time.Minute)
		}
		s.assign(pod("runs", "runs:1"))
		sleep(10 * time.Minute)
		present := func() map[string]bool {
			found, err := machine.Images(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out := map[string]bool{}
			for _, i := range found {
				out[i.ID] = true
			}
			return out
		}
		if got := present(); len(got) != 4 || machine.Calls("RemoveImage") != 0 {
			t.Errorf("80 %% of the disk are in use: %v", got)
		}
		s.assign(pod("also", "also:1")) // 100 %
		sleep(10 * time.Minute)
		if got := present(); got["first:1"] || !got["second:1"] || !got["kept:1"] || !got["runs:1"] || !got["also:1"] {
			t.Errorf("left: %v", got)
		}
		freed, err := a.CollectImages(t.Context(), 1000)
		if err != nil || freed != 200 {
			t.Errorf("freed %d, %v", freed, err)
		}
		if got := present(); got["second:1"] || !got["kept:1"] || !got["runs:1"] || !got["also:1"] {
			t.Errorf("left: %v", got)
		}
		synctest.Wait()
		s.mu.Lock()
		shown := len(s.stocked[len(s.stocked)-1])
		s.mu.Unlock()
		if shown != 3 {
			t.Errorf("the Node shows %d images", shown)
		}
	})
}
