package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"headway.dev/headway/runtime/agent"
	"headway.dev/headway/runtime/keeper"
)

// What Kubernetes keeps of termination messages: of a container's file, of all of a
// pod's, and of a log.
const (
	maxMessage    = 4096
	maxMessages   = 12 << 10
	maxLogMessage = 2048
	maxLogLines   = 80
)

// messageRule says how a container's termination message is found.
type messageRule struct {
	limit   int
	fromLog bool // if it fails without one, the end of its log is it
}

func messageOf(spec agent.ContainerSpec) messageRule {
	all := len(spec.Pod.Spec.InitContainers) + len(spec.Pod.Spec.Containers)
	return messageRule{
		limit:   min(maxMessage, maxMessages/all),
		fromLog: spec.Container.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// String is the rule as a label.
func (m messageRule) String() string {
	if m.fromLog {
		return fmt.Sprintf("%d,log", m.limit)
	}
	return fmt.Sprint(m.limit)
}

// readMessage reads a label; of a container from before there was one nothing is said.
func readMessage(label string) messageRule {
	m := messageRule{limit: maxMessage}
	size, from, _ := strings.Cut(label, ",")
	if n, err := fmt.Sscan(size, &m.limit); n != 1 || err != nil || m.limit > maxMessage || m.limit < 0 {
		m.limit = maxMessage
	}
	m.fromLog = from == "log"
	return m
}

// message reads what a container left in its termination message file, through a
// descriptor that cannot be led elsewhere: the container could write there.
func (r *Runtime) message(uid types.UID, id string, limit int) (string, error) {
	f, err := os.OpenFile(r.pod(uid).path("containers", id+".message"), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close() // opened for reading: nothing to lose
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	return strings.ToValidUTF8(string(text), "\uFFFD"), err
}

// conclude ends a container whose exit is on record, but not yet the message that the end
// of its log gives. The log is whole only after the process's remains are gone. Killed
// at any line, it is done by the next load.
func (r *Runtime) conclude(ctx context.Context, uid types.UID, id string, c *container, record containerRecord) {
	ctx, cancel := undo(ctx)
	defer cancel()
	end := &tail{limit: min(c.message.limit, maxLogMessage)}
	err := r.clean(ctx, id)
	if err == nil {
		err = keeper.Read(ctx, c.state.LogPath, keeper.ReadOptions{Tail: maxLogLines}, end)
	}
	if err != nil {
		r.cfg.Log.Warn("termination message not read from the log", "container", id, "err", err)
	}
	record.Message, record.FromLog = strings.ToValidUTF8(string(end.text), "\uFFFD"), false
	r.ended(ctx, uid, id, c, record, writeRecord(r.pod(uid).containerRecord(id), record))
}

// tail keeps the last bytes that are written to it.
type tail struct {
	limit int
	text  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if over := len(t.text) - t.limit; over > 0 {
		t.text = bytes.Clone(t.text[over:])
	}
	return len(p), nil
}
