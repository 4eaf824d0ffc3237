package containerd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"headway.dev/headway/runtime/agent"
)

// Containers of our namespace that Headway did not make are reported and left alone.
func TestForeignContainers(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	spec, err := typeurl.MarshalAny(&specs.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(id string, labels map[string]string) {
		t.Helper()
		_, err := n.client.ContainerService().Create(ctx, containers.Container{
			ID: id, Image: "docker.io/library/toy:1", Runtime: containers.RuntimeInfo{Name: runcRuntime}, Spec: spec, Labels: labels,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	remove := func(id string) {
		t.Helper()
		if err := n.client.ContainerService().Delete(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	// told waits on events until these are the foreign ones.
	told := func(when string, want ...string) []agent.ForeignContainer {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for {
			found, err := n.Foreign(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, c := range found {
				ids = append(ids, c.ID)
			}
			if strings.Join(ids, " ") == strings.Join(want, " ") {
				return found
			}
			select {
			case <-n.events:
			case <-deadline:
				t.Fatalf("%s: foreign are %q, want %q", when, ids, want)
			}
		}
	}
	told("at first")
	create("toy", nil)
	if c := told("made by somebody", "toy")[0]; c.Image != "docker.io/library/toy:1" || c.Namespace != n.cfg.Namespace || c.CreatedAt.IsZero() {
		t.Errorf("%+v", c)
	}
	create("forged", map[string]string{labelUID: "../../etc", labelAttempt: "0"})
	told("with labels that we do not make", "toy", "forged")
	if err := n.Destroy(ctx); err == nil || !strings.Contains(err.Error(), "holds 2 containers that Headway did not make, toy first") {
		t.Errorf("destroyed: %v", err)
	}

	// A container that was to delete a lost task with, left by a kill, goes.
	create("left", map[string]string{labelOrphan: "true"})
	n.close()
	n.open()
	told("after a restart", "toy", "forged")
	if _, err := n.client.ContainerService().Get(ctx, "left"); !errdefs.IsNotFound(err) {
		t.Errorf("what deleteOrphan left is there still: %v", err)
	}
	remove("toy")
	told("removed", "forged")
	remove("forged")
	told("all removed")
}
