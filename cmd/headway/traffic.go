package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"headway.dev/headway/runtime/dns"
	"headway.dev/headway/runtime/keeper"
	"headway.dev/headway/runtime/network"
	"headway.dev/headway/runtime/network/route"
	"headway.dev/headway/runtime/resolv"
)

// nameTimeout bounds the question for one name.
const nameTimeout = 3 * time.Second

// traffic is how this node's pods reach Services: by the kernel's routes, and by
// name. It implements agent.Traffic.
type traffic struct {
	routes *route.Router
	names  *dns.Server
	pods   *network.Network
	domain resolv.Cluster
}

// openTraffic makes both halves; run makes them work. It changes nothing on the
// machine but the file with the address for names.
func openTraffic(cfg machineConfig, pods *network.Network, output *keeper.Client) (_ *traffic, names resolv.Cluster, err error) {
	services, err := netip.ParsePrefix(cfg.nets.services)
	if err != nil {
		return nil, names, fmt.Errorf("--service-cidr: %w", err)
	}
	instance, err := cfg.dir.instance()
	if err != nil {
		return nil, names, err
	}
	names = resolv.Cluster{Domain: cfg.nets.domain}
	if names.Server, err = dns.Address(cfg.dir.dnsAddress(), instance); err != nil {
		return nil, names, err
	}
	bridge, subnet := pods.Bridge()
	t := &traffic{domain: names, pods: pods}
	t.routes, err = route.New(route.Config{
		Table: routeTable(instance), Node: cfg.node, Bridge: bridge, Services: services, Pods: subnet, Log: cfg.log.With("component", "route"),
	})
	if err != nil {
		return nil, names, err
	}
	conf := dns.Config{
		Domain: cfg.nets.domain, Address: netip.AddrPortFrom(names.Server, 0), Interface: dnsInterface(instance),
		Services: []netip.Prefix{services}, Keeper: output, Metrics: cfg.metrics, Log: cfg.log.With("component", "dns"),
	}
	if subnet.IsValid() {
		conf.Pods = []netip.Prefix{subnet}
	} else {
		// Who is a pod cannot be told from a stranger: pods keep the node's resolvers.
		cfg.log.Warn("the pods' network is not Headway's own: pods do not get the cluster's names", "directory", cfg.dir.network())
		names.Server = netip.Addr{}
	}
	if t.names, err = dns.New(conf); err != nil {
		return nil, names, fmt.Errorf("answer for the cluster's names: %w", err)
	}
	return t, names, nil
}

// removeTraffic takes away what run made on this machine.
func removeTraffic(ctx context.Context, cfg machineConfig) error {
	instance, err := cfg.dir.instance()
	if err != nil {
		return err
	}
	routes, err := route.New(route.Config{Table: routeTable(instance), Node: "none", Log: cfg.log})
	if err != nil {
		return err
	}
	return errors.Join(routes.Destroy(ctx), dns.RemoveInterface(dnsInterface(instance)))
}

// routeTable is the name of the nftables table with the routes.
func routeTable(instance string) string { return "headway-" + bridgeName(instance) + "-services" }

// dnsInterface is the name of the interface that has the address for names.
func dnsInterface(instance string) string { return bridgeName(instance) + "dns" }

// run keeps host ports and routes in the kernel and answers for names until ctx ends. The
// routes stay.
func (t *traffic) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.pods.Run(ctx) })
	group.Go(func() error { return t.routes.Run(ctx) })
	group.Go(func() error { return t.names.Run(ctx) })
	defer t.routes.Close()
	return group.Wait()
}

func (t *traffic) SetService(s *corev1.Service) {
	t.routes.SetService(s)
	t.names.SetService(s)
}

func (t *traffic) UnsetService(namespace, name string) {
	t.routes.UnsetService(namespace, name)
	t.names.UnsetService(namespace, name)
}

func (t *traffic) SetSlice(s *discoveryv1.EndpointSlice) {
	t.routes.SetSlice(s)
	t.names.SetSlice(s)
}

func (t *traffic) UnsetSlice(namespace, name string) {
	t.routes.UnsetSlice(namespace, name)
	t.names.UnsetSlice(namespace, name)
}

func (t *traffic) Drop(pod netip.Addr)            { t.routes.Drop(pod) }
func (t *traffic) Admit(pod netip.Addr)           { t.routes.Admit(pod) }
func (t *traffic) Synced()                        { t.names.Synced() }
func (t *traffic) Sync(ctx context.Context) error { return t.routes.Sync(ctx) }

// explain follows a connection of a pod: the name, as this node answers for it, then
// the routes.
func (t *traffic) explain(ctx context.Context, namespace, service, port string) (any, error) {
	path, err := t.routes.Explain(namespace, service, port)
	if err != nil {
		return nil, err
	}
	name := service + "." + namespace + ".svc." + t.domain.Domain
	ctx, cancel := context.WithTimeout(ctx, nameTimeout)
	defer cancel()
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, netip.AddrPortFrom(t.domain.Server, 53).String())
	}}
	found, err := resolver.LookupHost(ctx, name+".")
	line := name + " is " + strings.Join(found, ", ") + ", says " + t.domain.Server.String()
	if err != nil {
		var failed *net.DNSError
		if errors.As(err, &failed) { // it names the machine's resolver, which was not asked
			err = errors.New(failed.Err)
		}
		line = name + ": " + err.Error() + ", says " + t.domain.Server.String()
		if path.Stops == "" {
			path.Stops = "the name leads nowhere"
		}
	}
	path.Steps = append([]route.Step{{Name: "name", Lines: []string{line}}}, path.Steps...)
	return path, nil
}
