package agent

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	requests "k8s.io/component-helpers/resource"

	"headway.dev/headway/runtime/volume"
)

const weighPeriod = 10 * time.Second // Kubernetes'

// Room is what something takes of a disk.
type Room = volume.Room

// weigh looks on a period at what pods have written that may not write without end.
func (a *Agent) weigh(ctx context.Context) {
	tick := time.NewTicker(weighPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.Weigh(ctx)
		}
	}
}

// Weigh ends the pods that have written more than they may: into an emptyDir with a
// sizeLimit, or against the limits of ephemeral-storage of their containers. Nothing is
// measured of a pod that has neither. Who steps the agent calls it on a period.
func (a *Agent) Weigh(ctx context.Context) {
	for _, pod := range a.lively() {
		if ctx.Err() != nil {
			return
		}
		v := a.overfull(ctx, pod)
		if v == nil {
			continue
		}
		a.mu.Lock()
		if e := a.entries[pod.UID]; e != nil {
			a.evict(e, *v)
		}
		a.mu.Unlock()
	}
}

// overfull measures what a pod has written, as far as it is limited, and says why it
// has to go; nil: it may stay. What cannot be measured is told of and limits nothing.
func (a *Agent) overfull(ctx context.Context, pod *corev1.Pod) *verdict {
	limited := limitsStorage(pod)
	volumes := map[string]int64{}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if !onDisk(v) || !limited && !sized(v) || a.cfg.Volumes == nil {
			continue
		}
		used, err := a.cfg.Volumes.Usage(pod.UID, v.Name)
		if err != nil {
			a.log.Error("emptyDir not measured: its limit is not held meanwhile", "pod", pod.UID, "volume", v.Name, "error", err)
			continue
		}
		volumes[v.Name] = used.Bytes
	}
	var written []Written
	if limited {
		var err error
		if written, err = a.cfg.Runtime.Written(ctx, pod.UID); err != nil {
			if ctx.Err() == nil {
				a.log.Error("what a pod has written is not measured: its limit is not held meanwhile", "pod", pod.UID, "error", err)
			}
		}
	}
	return exceeds(pod, volumes, written)
}

func sized(v *corev1.Volume) bool {
	return v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() > 0
}

// limitsStorage says whether a container of the pod has a limit of ephemeral-storage.
func limitsStorage(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if q, ok := list[i].Resources.Limits[corev1.ResourceEphemeralStorage]; ok && q.Sign() > 0 {
				return true
			}
		}
	}
	return false
}

// exceeds holds what a pod has written, by emptyDir and by container, against its
// limits. The reasons and their order are Kubernetes'.
func exceeds(pod *corev1.Pod, volumes map[string]int64, written []Written) *verdict {
	end := func(format string, args ...any) *verdict {
		return &verdict{Reason: evicted, Message: fmt.Sprintf(format, args...), Hasty: true}
	}
	var total int64
	add := func(n int64) { // a volume that is nested too deep counts as more than there is
		if total += n; total < 0 {
			total = math.MaxInt64
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		used, measured := volumes[v.Name]
		if measured && sized(v) && used > v.EmptyDir.SizeLimit.Value() {
			return end("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, v.EmptyDir.SizeLimit)
		}
		add(used)
	}
	of := map[string]int64{}
	for _, w := range written {
		of[w.Container] += w.Bytes
		add(w.Bytes)
	}
	all := requests.PodLimits(pod, requests.PodResourcesOptions{})
	if most, limited := all[corev1.ResourceEphemeralStorage]; limited && total > most.Value() {
		return end("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", most.String())
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			if most := c.Resources.Limits[corev1.ResourceEphemeralStorage]; most.Sign() > 0 && of[c.Name] > most.Value() {
				return end("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, most.String())
			}
		}
	}
	return nil
}
