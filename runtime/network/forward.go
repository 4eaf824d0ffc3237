package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// A firewall that drops what it does not know (Docker's, for one) drops pods'
// packets, and no rule in a table of our own can accept them for it. These two
// rules go first in its chain. Where the policy is to accept, nothing is added.
func forwardRules(bridge string) [][]string {
	return [][]string{
		{"FORWARD", "-i", bridge, "-j", "ACCEPT"},
		{"FORWARD", "-o", bridge, "-j", "ACCEPT"},
	}
}

func enableForwarding(ctx context.Context, bridge string) error {
	out, err := iptables(ctx, "-S", "FORWARD")
	if errors.Is(err, exec.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(out, []byte("-P FORWARD DROP")) {
		return nil
	}
	for _, rule := range forwardRules(bridge) {
		if _, err := iptables(ctx, append([]string{"-C"}, rule...)...); err == nil {
			continue
		}
		if _, err := iptables(ctx, append([]string{"-I"}, rule...)...); err != nil {
			return err
		}
	}
	return nil
}

func disableForwarding(ctx context.Context, bridge string) error {
	for _, rule := range forwardRules(bridge) {
		for {
			if _, err := iptables(ctx, append([]string{"-C"}, rule...)...); err != nil {
				break // not there (or no iptables): nothing to take away
			}
			if _, err := iptables(ctx, append([]string{"-D"}, rule...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

func iptables(ctx context.Context, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, "iptables", append([]string{"-w"}, args...)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("iptables %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return out, nil
}
