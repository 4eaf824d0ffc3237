package route

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink"
)

// serviceRoute is the route by which the node itself asks for Services. Packets
// are sent elsewhere before they take it; what matters is that there is one, on a
// node without a default route too, and that it gives a source address which the
// pods can answer to.
func (r *Router) serviceRoute() (*netlink.Route, error) {
	if r.cfg.Bridge == "" || !r.cfg.Services.IsValid() {
		return nil, nil //nolint:nilnil // none is wanted
	}
	link, err := netlink.LinkByName(r.cfg.Bridge)
	if err != nil {
		return nil, fmt.Errorf("find bridge %s for the route to Services: %w", r.cfg.Bridge, err)
	}
	to := &net.IPNet{IP: r.cfg.Services.Addr().AsSlice(), Mask: net.CIDRMask(r.cfg.Services.Bits(), 32)}
	return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK}, nil
}

// ensureRoute makes the route. One that is there stays, be it another instance's.
func (r *Router) ensureRoute() error {
	route, err := r.serviceRoute()
	if route == nil || err != nil {
		return err
	}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("add route to Services %s by %s: %w", r.cfg.Services, r.cfg.Bridge, err)
	}
	return nil
}

func (r *Router) removeRoute() error {
	route, err := r.serviceRoute()
	var gone netlink.LinkNotFoundError
	if errors.As(err, &gone) {
		return nil // and the route with it
	}
	if route == nil || err != nil {
		return err
	}
	if err := netlink.RouteDel(route); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("remove route to Services %s by %s: %w", r.cfg.Services, r.cfg.Bridge, err)
	}
	return nil
}
