package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"
)

// builtin executes CNI plugins: those that it knows in this process, others as
// programs. It is the invoke.Exec that libcni is given.
type builtin struct {
	invoke.DefaultExec
	dirs  []string
	ports *hostPorts

	mu      sync.Mutex
	bridges map[string]*bridge // by name, those that exist
}

const builtinPrefix = "builtin:"

func newBuiltin(cfg Config) (*builtin, error) {
	ports, err := newHostPorts(filepath.Join(cfg.Dir, "ports"), cfg.Bridge)
	if err != nil {
		return nil, err
	}
	return &builtin{
		DefaultExec: invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}, PluginDecoder: version.PluginDecoder{}},
		dirs:        cfg.PluginDirs, ports: ports, bridges: map[string]*bridge{},
	}, nil
}

// FindInPath says where a plugin is.
func (b *builtin) FindInPath(plugin string, dirs []string) (string, error) {
	if plugin == "bridge" || plugin == "portmap" {
		return builtinPrefix + plugin, nil
	}
	return b.DefaultExec.FindInPath(plugin, dirs)
}

// ExecPlugin performs one plugin.
func (b *builtin) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	name, ok := strings.CutPrefix(path, builtinPrefix)
	if !ok {
		return b.DefaultExec.ExecPlugin(ctx, path, stdin, environ)
	}
	call := readCall(environ)
	var netConf struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(stdin, &netConf); err != nil {
		return nil, fmt.Errorf("decode network configuration: %w", err)
	}
	switch name {
	case "bridge":
		if conf, ok := decodeBridge(stdin, netConf.Name); ok && call.known() {
			return b.bridge(ctx, conf, call)
		}
	case "portmap":
		if conf, ok := decodePortmap(stdin); ok && call.known() {
			return b.portmap(ctx, conf, call)
		}
	}
	// An option, or a command (CHECK, GC), that only the program knows.
	program, err := b.DefaultExec.FindInPath(name, b.dirs)
	if err != nil {
		return nil, err
	}
	return b.DefaultExec.ExecPlugin(ctx, program, stdin, environ)
}

// call is what CNI passes in the environment.
type call struct{ command, id, netns, ifname string }

func readCall(environ []string) call {
	var c call
	for _, e := range environ {
		k, v, _ := strings.Cut(e, "=")
		switch k {
		case "CNI_COMMAND":
			c.command = v
		case "CNI_CONTAINERID":
			c.id = v
		case "CNI_NETNS":
			c.netns = v
		case "CNI_IFNAME":
			c.ifname = v
		}
	}
	return c
}

func (c call) known() bool { return c.command == "ADD" || c.command == "DEL" }

// prepare makes the bridge and its rules, at start.
func (b *builtin) prepare(ctx context.Context, conf bridgeConf) error {
	if _, err := b.find(conf); err != nil {
		return err
	}
	if err := enableForwarding(ctx, conf.Bridge); err != nil {
		return err
	}
	tracked, err := loadBridgeFilter(ctx)
	if err != nil {
		return err
	}
	return b.ports.prepare(ctx, conf, tracked)
}

// find returns a configuration's bridge, made where there is none.
func (b *builtin) find(conf bridgeConf) (*bridge, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if br := b.bridges[conf.Bridge]; br != nil {
		return br, nil
	}
	link, err := ensureBridge(conf)
	if err != nil {
		return nil, err
	}
	br := &bridge{conf: conf, addresses: &addresses{
		dir: filepath.Join(conf.IPAM.DataDir, conf.Name), subnet: conf.subnet(), gateway: conf.gateway(),
	}}
	br.index.Store(int64(link))
	b.bridges[conf.Bridge] = br
	return br, nil
}

// known lists the ids that hold an address or a host port.
func (b *builtin) known() ([]string, error) {
	ids, err := b.ports.ids()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, br := range b.bridges {
		more, err := br.addresses.holders()
		if err != nil {
			return nil, err
		}
		ids = append(ids, more...)
	}
	return ids, nil
}

func (b *builtin) destroy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for name := range b.bridges {
		errs = append(errs, disableForwarding(ctx, name), removeLink(name))
	}
	clear(b.bridges)
	return errors.Join(append(errs, b.ports.destroy(ctx))...)
}

// strict decodes JSON and reports whether it knew every field.
func strict(data []byte, v any) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v) == nil
}

// bridgeConf is the part of the bridge plugin's configuration that is built in.
type bridgeConf struct {
	CNIVersion   string          `json:"cniVersion"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Bridge       string          `json:"bridge"`
	IsGateway    bool            `json:"isGateway"`
	IPMasq       bool            `json:"ipMasq"`
	HairpinMode  bool            `json:"hairpinMode"`
	MTU          int             `json:"mtu"`
	IPAM         ipamConf        `json:"ipam"`
	PrevResult   json.RawMessage `json:"prevResult"`
	Capabilities map[string]bool `json:"capabilities"`
}

type ipamConf struct {
	Type    string                `json:"type"`
	DataDir string                `json:"dataDir"`
	Ranges  [][]map[string]string `json:"ranges"`
	Routes  []map[string]string   `json:"routes"`
}

// decodeBridge returns the configuration if all of it is understood: one IPv4
// subnet, a gateway, a default route.
func decodeBridge(data []byte, network string) (bridgeConf, bool) {
	var c bridgeConf
	if !strict(data, &c) || c.Type != "bridge" || c.Bridge == "" || !c.IsGateway || c.IPAM.Type != "host-local" {
		return c, false
	}
	if len(c.IPAM.Ranges) != 1 || len(c.IPAM.Ranges[0]) != 1 || len(c.IPAM.Ranges[0][0]) != 1 {
		return c, false
	}
	if len(c.IPAM.Routes) != 1 || len(c.IPAM.Routes[0]) != 1 || c.IPAM.Routes[0]["dst"] != "0.0.0.0/0" {
		return c, false
	}
	if c.IPAM.DataDir == "" {
		c.IPAM.DataDir = "/var/lib/cni/networks"
	}
	c.Name = network
	s, err := netip.ParsePrefix(c.IPAM.Ranges[0][0]["subnet"])
	return c, err == nil && s.Addr().Is4() && s.Bits() <= 30
}

func (c bridgeConf) subnet() netip.Prefix {
	return netip.MustParsePrefix(c.IPAM.Ranges[0][0]["subnet"]).Masked()
}

func (c bridgeConf) gateway() netip.Addr { return c.subnet().Addr().Next() }

// portmapConf is the part of the portmap plugin's configuration that is built in.
type portmapConf struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	SNAT          *bool           `json:"snat"`
	Capabilities  map[string]bool `json:"capabilities"`
	RuntimeConfig struct {
		PortMappings []mapping `json:"portMappings"`
	} `json:"runtimeConfig"`
	PrevResult json.RawMessage `json:"prevResult"`
}

func decodePortmap(data []byte) (portmapConf, bool) {
	var c portmapConf
	ok := strict(data, &c) && c.Type == "portmap" && (c.SNAT == nil || *c.SNAT)
	for _, m := range c.RuntimeConfig.PortMappings {
		ok = ok && m.known()
		if m.HostIP != "" {
			a, err := netip.ParseAddr(m.HostIP)
			ok = ok && err == nil && a.Is4()
		}
	}
	return c, ok
}
