package containerd

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
)

// Destroy ends and removes every pod, then the images and the namespace in
// containerd and the pods' cgroup: nothing of this Runtime is left on the machine
// but its directory. It may be called again after it was cut off. Containers that
// Headway did not make are not for it to end: it does nothing while there are any.
func (r *Runtime) Destroy(ctx context.Context) error {
	strangers, err := r.Foreign(ctx)
	if err != nil {
		return err
	}
	if len(strangers) > 0 {
		return fmt.Errorf("containerd's namespace %s holds %d containers that Headway did not make, %s first: remove them with ctr -n %s containers rm, and try again",
			r.cfg.Namespace, len(strangers), strangers[0].ID, r.cfg.Namespace)
	}
	all, err := r.List(ctx)
	if err != nil {
		return err
	}
	for _, sandbox := range all {
		if err := r.RemoveSandbox(ctx, sandbox.UID); err != nil {
			return err
		}
	}
	ctx = namespaces.WithNamespace(ctx, r.cfg.Namespace)
	there, err := r.client.ImageService().List(ctx)
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	for _, image := range there {
		if err := r.client.ImageService().Delete(ctx, image.Name, images.SynchronousDelete()); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("delete image %s: %w", image.Name, err)
		}
	}
	if err := r.release(ctx); err != nil {
		return err
	}
	if err := r.client.NamespaceService().Delete(ctx, r.cfg.Namespace); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("delete containerd's namespace %s: %w", r.cfg.Namespace, err)
	}
	return r.cgroups.remove(r.cfg.CgroupParent)
}

// release frees the content that nothing but a lease holds: that of an import or a
// pull which was killed, else kept for a day. The lease of our own makes containerd
// collect garbage, and wait for it, also when there was nothing else to delete.
func (r *Runtime) release(ctx context.Context) error {
	service := r.client.LeasesService()
	if _, err := service.Create(ctx, leases.WithID("headway-destroy")); err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("make a lease: %w", err)
	}
	all, err := service.List(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, lease := range all {
		if err := service.Delete(ctx, lease, leases.SynchronousDelete); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("delete lease %s: %w", lease.ID, err)
		}
	}
	return nil
}
