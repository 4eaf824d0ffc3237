package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/api"
	"headway.dev/headway/runtime/session"
)

const (
	failedDelete = "VolumeFailedDelete" // Kubernetes'
	unknownData  = "UnknownVolumeData"
	upkeepAgain  = 5 * time.Second // a volume that is to go is still in use
	maxStrays    = 100             // data of unknown volumes that are told of
)

// upkeep is what is known of persistent volumes beside their objects. Agent.mu guards it.
type upkeep struct {
	doomed map[string]*ending // volumes whose data is to go, by name
	strays map[string]bool    // data of no volume that were told of
	look   bool               // for such data
	wake   chan struct{}
}

// ending is how far the end of a volume's data is.
type ending struct {
	uid     types.UID
	aside   bool // nobody finds it by its name any more
	told    bool // the session was told that it is gone
	trouble trouble
}

func newUpkeep() upkeep {
	return upkeep{doomed: map[string]*ending{}, wake: make(chan struct{}, 1)}
}

// doom notes whether the server wants a volume's data to go.
func (u *upkeep) doom(pv *corev1.PersistentVolume, discard bool) {
	if !discard {
		delete(u.doomed, pv.Name)
		return
	}
	if e := u.doomed[pv.Name]; e == nil || e.uid != pv.UID {
		u.doomed[pv.Name] = &ending{uid: pv.UID}
	}
	notify(u.wake)
}

// spare notes that a volume is not this node's any more.
func (u *upkeep) spare(name string) { delete(u.doomed, name) }

// again has a new session told.
func (u *upkeep) again() {
	for _, e := range u.doomed {
		e.told = false
	}
	notify(u.wake)
}

// list has the data that is here compared with the volumes that are known.
func (u *upkeep) list() {
	u.look = true
	notify(u.wake)
}

// keepUp calls Upkeep until ctx ends.
func (a *Agent) keepUp(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next := a.Upkeep(ctx)
		sleep := time.Hour
		if !next.IsZero() {
			sleep = max(next.Sub(a.cfg.Now()), 0)
		}
		timer.Reset(sleep)
		select {
		case <-ctx.Done():
			return
		case <-a.upkeep.wake:
		case <-timer.C:
		}
	}
}

// Upkeep takes one step at the volumes whose data is to go, and says when to call it
// again: zero when there is nothing to do. It acts only while the node's lease is surely
// held: what the server wanted before that may not be so any more. One goroutine calls
// it, or who steps the agent.
func (a *Agent) Upkeep(ctx context.Context) time.Time {
	if a.cfg.Volumes == nil || a.cfg.Volumes.PersistentDir() == "" {
		return time.Time{}
	}
	a.mu.Lock()
	look := a.upkeep.look && a.synced && a.seen == nil
	var names []string
	if a.synced && a.cfg.Boot() < a.right {
		names = a.ripe(a.cfg.Now())
	}
	a.mu.Unlock()
	if look {
		a.strays()
	}
	for _, name := range names {
		if ctx.Err() != nil {
			return time.Time{}
		}
		a.setAside(ctx, name)
	}
	left, err := a.cfg.Volumes.Clear(ctx)
	if ctx.Err() != nil {
		return time.Time{}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cleared(left, err)
}

// ripe lists the volumes whose data can be set aside now. Agent.mu is held.
func (a *Agent) ripe(now time.Time) (out []string) {
	used := map[string]bool{}
	for _, e := range a.entries {
		ended := e.released || e.pod != nil && (e.pod.DeletionTimestamp != nil || terminal(e.record.last.Phase))
		if e.pod == nil || ended && (e.sandbox == nil && e.record.clean || e.sandbox != nil && !e.sandbox.Ready) {
			continue // its volumes are unmounted, or Discard finds that they are not
		}
		for i := range e.pod.Spec.Volumes {
			if claim := a.things.claims[e.pod.Namespace+"/"+api.ClaimName(e.pod, &e.pod.Spec.Volumes[i])]; claim != nil {
				used[claim.Spec.VolumeName] = true
			}
		}
	}
	for _, name := range sortedKeys(a.upkeep.doomed) {
		e := a.upkeep.doomed[name]
		if !e.aside && !used[name] && !now.Before(e.trouble.backoff.until()) {
			out = append(out, name)
		}
	}
	return out
}

// setAside has the data of one volume go, if its reclaim policy says so.
func (a *Agent) setAside(ctx context.Context, name string) {
	a.mu.Lock()
	pv, e := a.things.volumes[name], a.upkeep.doomed[name]
	a.mu.Unlock()
	if pv == nil || e == nil || e.uid != pv.UID || api.LocalVolumeNode(pv) != a.name {
		return
	}
	var err error
	if pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		err = a.cfg.Volumes.Discard(ctx, name)
	} else {
		a.log.Info("data of a volume that is deleted is kept, as its reclaim policy says", "volume", name, "folder", a.cfg.Volumes.PersistentDir(), "policy", pv.Spec.PersistentVolumeReclaimPolicy)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		e.aside, e.trouble = true, trouble{}
	} else if ctx.Err() == nil {
		a.stays(e, pv, err)
	}
}

// stays tells why the data of a volume cannot go yet. Agent.mu is held.
func (a *Agent) stays(e *ending, pv *corev1.PersistentVolume, err error) {
	if e.trouble.message != err.Error() {
		a.log.Warn("data of a volume cannot be removed; trying again", "volume", pv.Name, "error", err)
		a.out.event(a.volumeEvent(pv, err.Error()))
		notify(a.send)
	}
	e.trouble = trouble{reason: failedDelete, message: err.Error(), backoff: e.trouble.backoff.next(a.cfg.Now(), errorFirst, errorMost)}
}

// cleared tells the session of the data that is gone, of which nothing is left.
// Agent.mu is held.
func (a *Agent) cleared(left []string, err error) (wake time.Time) {
	now := a.cfg.Now()
	at := func(t time.Time) {
		if wake.IsZero() || t.Before(wake) {
			wake = t
		}
	}
	for _, name := range sortedKeys(a.upkeep.doomed) {
		e := a.upkeep.doomed[name]
		switch {
		case !e.aside || err != nil && len(left) == 0: // nobody knows what is left
			at(now.Add(upkeepAgain))
		case e.told || a.seen != nil && !a.seen[session.Volumes+" "+name]: // not of this session
		case slices.Contains(left, name):
			if pv := a.things.volumes[name]; err != nil && pv != nil {
				a.stays(e, pv, err)
			}
		case len(a.out.gone) < session.MaxGone/2: // the others when these are sent
			e.told = true
			a.out.gone = append(a.out.gone, &session.VolumeGone{Name: name, Uid: string(e.uid)})
			notify(a.send)
		default:
			at(now.Add(upkeepAgain))
		}
	}
	switch {
	case err != nil:
		at(now.Add(errorMost))
	case len(left) > 0:
		at(now)
	}
	return wake
}

// strays tells of data that is of no volume that the cluster knows. It is left alone: its
// object may have been deleted by mistake, or restored into another cluster.
func (a *Agent) strays() {
	kept, err := a.cfg.Volumes.Kept()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.log.Error("persistent volumes cannot be listed", "error", err)
		return
	}
	a.upkeep.look = false
	now := map[string]bool{}
	for _, name := range kept {
		if a.things.volumes[name] != nil || len(now) >= maxStrays {
			continue
		}
		now[name] = true
		if a.upkeep.strays[name] {
			continue
		}
		message := fmt.Sprintf("the folder %s/%s has data of a volume that the cluster does not know; it is left alone. Remove it if nobody misses it, or declare a PersistentVolume for it", a.cfg.Volumes.PersistentDir(), name)
		a.log.Warn("data of a volume that the cluster does not know", "volume", name, "folder", a.cfg.Volumes.PersistentDir())
		a.out.event(a.nodeEvent(name, corev1.EventTypeWarning, unknownData, message))
		notify(a.send)
	}
	a.upkeep.strays = now
}

// volumeEvent is an event about a volume of this node.
func (a *Agent) volumeEvent(pv *corev1.PersistentVolume, message string) *corev1.Event {
	e := a.eventAbout(corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: pv.Name, UID: pv.UID}, string(pv.UID)+message)
	e.Reason, e.Message = failedDelete, message
	return e
}
