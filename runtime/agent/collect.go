package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"headway.dev/headway/runtime/image"
)

// Collect says when images are removed that nothing uses, as in Kubernetes.
type Collect struct {
	High   int           // percent of the disk in use from which on they are; 0: 85; 100: never
	Low    int           // percent of it that are aimed at; 0: 80
	MinAge time.Duration // of an image since it was first seen; 0: 2 minutes
}

// Validate names what is wrong.
func (c Collect) Validate() error {
	c = c.withDefaults()
	switch {
	case c.High < 1 || c.High > 100 || c.Low < 1:
		return fmt.Errorf("images are removed from %d %% of the disk on, down to %d %%: give percents from 1 to 100", c.High, c.Low)
	case c.Low >= c.High:
		return fmt.Errorf("images are removed from %d %% of the disk on, down to %d %%: the second must be less", c.High, c.Low)
	case c.MinAge < 0:
		return fmt.Errorf("images are removed at an age of %s: give a time that is not negative", c.MinAge)
	}
	return nil
}

func (c Collect) withDefaults() Collect {
	return Collect{High: cmp.Or(c.High, 85), Low: cmp.Or(c.Low, 80), MinAge: cmp.Or(c.MinAge, 2*time.Minute)}
}

// collectPeriod is how often the disk is looked at.
const collectPeriod = 5 * time.Minute

// pastUse is what is remembered of an image.
type pastUse struct {
	Seen time.Time `json:"seen"` // first
	Used time.Time `json:"used"` // last; zero: never since it was seen
}

// excess is how many bytes of a disk are to be freed.
func excess(disk DiskSpace, c Collect) int64 {
	if c = c.withDefaults(); c.High >= 100 || disk.Capacity <= 0 {
		return 0
	}
	if used := disk.Capacity - disk.Available; used*100 < disk.Capacity*int64(c.High) {
		return 0
	}
	return max(disk.Capacity*int64(100-c.Low)/100-disk.Available, 0)
}

// removable are the images that may go, who was used longest ago first. needed says
// that a name is that of one that a container or a pod needs.
func removable(found []PresentImage, past map[string]pastUse, needed func(name string) bool, minAge time.Duration, now time.Time) []PresentImage {
	var out []PresentImage
	for _, i := range found {
		if i.Kept || slices.ContainsFunc(i.Names, needed) || now.Sub(past[i.ID].Seen) < minAge {
			continue
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(x, y PresentImage) int {
		a, b := past[x.ID], past[y.ID]
		return cmp.Or(a.Used.Compare(b.Used), a.Seen.Compare(b.Seen), cmp.Compare(x.ID, y.ID))
	})
	return out
}

// remember is what is known of the images that are there at a look.
func remember(found []PresentImage, past map[string]pastUse, needed func(name string) bool, now time.Time) map[string]pastUse {
	out := make(map[string]pastUse, len(found))
	for _, i := range found {
		u := past[i.ID]
		if u.Seen.IsZero() || u.Seen.After(now) { // new, or the clock was set back
			u.Seen = now
		}
		if u.Used.After(now) || slices.ContainsFunc(i.Names, needed) {
			u.Used = now
		}
		out[i.ID] = u
	}
	return out
}

// collect removes images on a period.
func (a *Agent) collect(ctx context.Context) {
	tick := time.NewTicker(collectPeriod)
	defer tick.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := a.TidyImages(ctx)
		if err != nil && ctx.Err() == nil && !failed {
			a.log.Error("images that nothing uses cannot be removed", "error", err)
		}
		failed = err != nil
	}
}

// TidyImages notes which images are in use, and removes others when the disk is full.
// Who steps the agent calls it on a period.
func (a *Agent) TidyImages(ctx context.Context) error {
	a.collecting.Lock()
	defer a.collecting.Unlock()
	disk, err := a.cfg.Runtime.ImageDisk(ctx)
	if err != nil {
		return fmt.Errorf("look at the disk of the images: %w", err)
	}
	free := excess(disk, a.cfg.Collect)
	freed, err := a.removeImages(ctx, free)
	if err == nil && freed < free {
		err = fmt.Errorf("the disk is %d %% full, and only %d of %d bytes could be freed: no other image may go",
			100-disk.Available*100/disk.Capacity, freed, free)
	}
	return err
}

// CollectImages frees so many bytes, or what it can, by removing images that nothing
// uses, and says how many it has freed. It is for a node whose disk is full.
func (a *Agent) CollectImages(ctx context.Context, free int64) (freed int64, err error) {
	a.collecting.Lock()
	defer a.collecting.Unlock()
	return a.removeImages(ctx, free)
}

// removeImages is for who holds collecting.
func (a *Agent) removeImages(ctx context.Context, free int64) (freed int64, err error) {
	if a.mu.Lock(); !a.adopted { // nobody knows yet what is in use
		a.mu.Unlock()
		return 0, errors.New("it is not known yet what runs")
	}
	a.mu.Unlock()
	found, err := a.cfg.Runtime.Images(ctx)
	if err != nil {
		return 0, fmt.Errorf("list images: %w", err)
	}
	path, now := filepath.Join(a.cfg.Dir, "images.json"), a.cfg.Now()
	past := readPast(path)
	needed := a.neededImages()
	past = remember(found, past, needed, now)
	if err := writePast(path, past); err != nil {
		return 0, err
	}
	if free <= 0 {
		return 0, nil
	}
	before, err := a.cfg.Runtime.ImageDisk(ctx)
	if err != nil {
		return 0, fmt.Errorf("look at the disk of the images: %w", err)
	}
	removed := 0
	defer func() {
		if removed > 0 {
			a.log.Info("images that nothing uses were removed", "images", removed, "bytes", freed)
			a.stock(ctx)
		}
	}()
	for _, i := range removable(found, past, needed, a.cfg.Collect.withDefaults().MinAge, now) {
		if slices.ContainsFunc(i.Names, a.neededImages()) { // meanwhile
			continue
		}
		if err := a.cfg.Runtime.RemoveImage(ctx, i.ID); err != nil {
			return freed, fmt.Errorf("remove image %s: %w", i.Names[0], err)
		}
		removed++
		after, err := a.cfg.Runtime.ImageDisk(ctx)
		if err != nil {
			return freed, fmt.Errorf("look at the disk of the images: %w", err)
		}
		if freed = max(after.Available-before.Available, 0); freed >= free {
			break
		}
	}
	return freed, nil
}

// neededImages says of a name that a pod of this node, or a container on it, needs its
// image.
func (a *Agent) neededImages() func(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	needed := map[string]bool{}
	add := func(name string) {
		if name == "" {
			return
		}
		needed[name] = true
		if ref, err := image.Canonical(name); err == nil {
			needed[ref] = true
		}
	}
	for _, e := range a.entries {
		if e.pod != nil && !e.released && !terminal(e.record.last.Phase) {
			for i := range e.pod.Spec.InitContainers {
				add(e.pod.Spec.InitContainers[i].Image)
			}
			for i := range e.pod.Spec.Containers {
				add(e.pod.Spec.Containers[i].Image)
			}
			for i := range e.pod.Spec.EphemeralContainers {
				add(e.pod.Spec.EphemeralContainers[i].Image)
			}
		}
		if e.sandbox == nil {
			continue
		}
		for _, c := range e.sandbox.Containers {
			add(c.Image)
			add(c.ImageID)
		}
	}
	for _, name := range a.strange {
		add(name)
	}
	return func(name string) bool { return needed[name] }
}

// readPast reads what is remembered of images. What is torn or lost is forgotten: every
// image is new then, and none is removed for a while.
func readPast(path string) map[string]pastUse {
	var past map[string]pastUse
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &past) != nil {
		return nil
	}
	return past
}

func writePast(path string, past map[string]pastUse) error {
	data, err := json.Marshal(past)
	if err != nil {
		return fmt.Errorf("encode the uses of images: %w", err)
	}
	if old, err := os.ReadFile(path); err == nil && string(old) == string(data) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the uses of images: %w", err)
	}
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return fmt.Errorf("write the uses of images: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write the uses of images: %w", err)
	}
	return nil
}
