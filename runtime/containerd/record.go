package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/network"
)

// sandboxRecord is what is on disk of a sandbox. It is written before anything
// of the sandbox is made, and goes last.
type sandboxRecord struct {
	UID       types.UID      `json:"uid"`
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	CreatedAt time.Time      `json:"createdAt"`
	Ports     []network.Port `json:"ports,omitempty"`
	IPs       []string       `json:"ips,omitempty"`    // set when it is whole; none with the node's network
	Whole     bool           `json:"whole,omitempty"`  // a version before it had only IPs to tell
	Shared    []string       `json:"shared,omitempty"` // kinds of namespaces that are the node's
	Pause     bool           `json:"pause,omitempty"`  // its containers share the PID namespace of a process of ours
	Stopped   bool           `json:"stopped,omitempty"`
	Made      int            `json:"made,omitempty"` // how often it was made anew
}

// containerRecord is what is on disk of a container beside containerd's labels.
type containerRecord struct {
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"` // set: it is over, whatever containerd says
	ExitCode   int32     `json:"exitCode"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
	Signalled  bool      `json:"signalled,omitempty"` // the stop signal was sent
	FromLog    bool      `json:"fromLog,omitempty"`   // the message is yet to be taken from the log
}

// podDir holds the files of one pod.
type podDir string

func (r *Runtime) pod(uid types.UID) podDir {
	return podDir(filepath.Join(r.cfg.Dir, "pods", string(uid)))
}

func (p podDir) path(parts ...string) string {
	return filepath.Join(append([]string{string(p)}, parts...)...)
}
func (p podDir) record() string                   { return p.path("sandbox.json") }
func (p podDir) ns(kind string) string            { return p.path("ns", kind) }
func (p podDir) containerRecord(id string) string { return p.path("containers", id+".json") }
func (p podDir) stdout(id string) string          { return p.path("containers", id+".out") }
func (p podDir) stderr(id string) string          { return p.path("containers", id+".err") }
func (p podDir) log(name string, attempt int) string {
	return p.path("logs", name, fmt.Sprintf("%d.log", attempt))
}

// writeRecord replaces a record: it is there whole or as it was. No fsync: after
// a power loss no container runs, and what a torn record leaves out is found as
// "dead, reason unknown", which is then true.
func writeRecord(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// readRecord reports false for one that is missing or torn.
func readRecord(path string, v any) (bool, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read record: %w", err)
	}
	return json.Unmarshal(data, v) == nil, nil
}

// validUID keeps a UID from being anything but a name in our directory.
func validUID(uid types.UID) error {
	if uid == "" || len(uid) > 63 {
		return fmt.Errorf("pod uid %q must have 1 to 63 characters", uid)
	}
	for _, c := range []byte(uid) {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return fmt.Errorf("pod uid %q has a character that is not allowed", uid)
		}
	}
	return nil
}
