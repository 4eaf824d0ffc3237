package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a pod sends to a Service is addressed anew on its way through the node.
// The answer of another pod of the same bridge would go straight to the first one,
// which does not know its sender. So packets between two pods of the bridge have
// to pass through the node's connection tracking too, which is what the kernel
// module br_netfilter is for. It is switched on for our bridges only. Where the kernel has no such module, such
// packets get the node's address as their source instead.

const bridgeSysctls = "/proc/sys/net/bridge/bridge-nf-call-"

// trackBridged switches that on for a bridge. Without the module it has no effect.
func trackBridged(index int) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("bridge"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_BR_NF_CALL_IPTABLES, []byte{1})
	req.AddData(info)
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// loadBridgeFilter loads the module where it is not there, and reports whether it
// is then. The module would filter every bridge of the machine: those of others
// are left as they are.
func loadBridgeFilter(ctx context.Context) (bool, error) {
	_, err := os.Stat(bridgeSysctls + "iptables")
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for br_netfilter: %w", err)
	}
	if err := exec.CommandContext(ctx, "modprobe", "br_netfilter").Run(); err != nil {
		return false, ctx.Err() // this kernel has none
	}
	for _, s := range []string{"iptables", "ip6tables", "arptables"} {
		if err := os.WriteFile(bridgeSysctls+s, []byte("0"), 0); err != nil {
			return false, fmt.Errorf("leave other bridges as they are: %w", err)
		}
	}
	return true, nil
}
