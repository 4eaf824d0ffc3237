package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"
)

// The other side of the protocol of syncer/git (wire.go there describes it).
const (
	hookVersion    = 2
	maxHookInput   = 1 << 20
	maxHookFrame   = 64 << 10
	maxHookOptions = 20
	maxHookOption  = 1000
)

// hello is what a hook says of itself.
type hello struct {
	Version    int      `json:"version"`
	Hook       string   `json:"hook"`
	Push       string   `json:"push"`
	Quarantine string   `json:"quarantine"`
	Input      string   `json:"input"`
	Options    []string `json:"options"`
}

// Hook is a git hook of the hosted repository: it tells the server what git is
// about to do (pre-receive) or has done (post-receive), prints what the server
// says, and returns git's exit code: 0 accepts a push, 1 refuses it. The server
// decides; nothing is accepted without its word.
//
// The name may be a path such as hooks/pre-receive. The server's gateway sets two
// variables: HEADWAY_SOCKET, the path of its unix socket, and HEADWAY_PUSH, the id
// of the push. Git sets GIT_PUSH_OPTION_COUNT and one variable for each option of
// git push -o.
func Hook(name string, _ []string, stdin io.Reader, stdout io.Writer, env func(string) string) int {
	name = filepath.Base(name)
	accepted, err := talk(name, stdin, stdout, env)
	switch {
	case err != nil && name == "post-receive":
		fmt.Fprintf(stdout, "headway: the rollout cannot be shown: %v\n", err)
	case err != nil:
		fmt.Fprintf(stdout, "headway: %v\n", err)
	}
	if accepted || name == "post-receive" { // nothing is left to refuse after it
		return 0
	}
	return 1
}

func talk(name string, stdin io.Reader, stdout io.Writer, env func(string) string) (accepted bool, err error) {
	socket, push := env("HEADWAY_SOCKET"), env("HEADWAY_PUSH")
	if socket == "" || push == "" {
		return false, errors.New("push to the address that `headway remote` prints, not to this folder; nothing changed")
	}
	input, err := io.ReadAll(io.LimitReader(stdin, maxHookInput+1))
	if err != nil {
		return false, fmt.Errorf("read what git pushes: %w; nothing changed", err)
	}
	if len(input) > maxHookInput {
		return false, errors.New("too many refs in one push; nothing changed")
	}
	if !utf8.Valid(input) { // JSON would quietly change the name
		return false, errors.New("a ref's name is not UTF-8; nothing changed")
	}
	options, err := pushOptions(env)
	if err != nil {
		return false, fmt.Errorf("%w; nothing changed", err)
	}
	hello, err := json.Marshal(hello{
		Version: hookVersion, Hook: name, Push: push, Quarantine: env("GIT_QUARANTINE_PATH"), Input: string(input), Options: options,
	})
	if err != nil {
		return false, fmt.Errorf("tell the server: %w; nothing changed", err)
	}
	conn, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		return false, fmt.Errorf("the server is not running: %w; nothing changed", err)
	}
	defer conn.Close()
	frame := binary.BigEndian.AppendUint32([]byte{'H'}, uint32(len(hello)))
	if _, err := conn.Write(append(frame, hello...)); err != nil {
		return false, fmt.Errorf("tell the server: %w; nothing changed", err)
	}
	accepted, err = verdict(conn, stdout)
	if err != nil {
		return false, fmt.Errorf("the server stopped before it answered (%w); fetch to see whether the push arrived", err)
	}
	return accepted, nil
}

// pushOptions returns the options of git push -o.
func pushOptions(env func(string) string) ([]string, error) {
	count := env("GIT_PUSH_OPTION_COUNT")
	if count == "" {
		return nil, nil
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("git says that there are %.20q push options", count)
	}
	if n > maxHookOptions {
		return nil, fmt.Errorf("%d push options, at most %d are taken", n, maxHookOptions)
	}
	options := make([]string, n)
	for i := range options {
		o := env("GIT_PUSH_OPTION_" + strconv.Itoa(i))
		if len(o) > maxHookOption {
			return nil, fmt.Errorf("a push option of %d bytes, at most %d are taken", len(o), maxHookOption)
		}
		if !utf8.ValidString(o) {
			return nil, errors.New("a push option is not UTF-8")
		}
		options[i] = o
	}
	return options, nil
}

// verdict prints what the server says until its verdict.
func verdict(conn io.Reader, stdout io.Writer) (accepted bool, err error) {
	var head [5]byte
	for {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return false, err
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxHookFrame {
			return false, fmt.Errorf("a frame of %d bytes", n)
		}
		switch head[0] {
		case 'P':
			body := make([]byte, n)
			if _, err := io.ReadFull(conn, body); err != nil {
				return false, err
			}
			// Git may have closed our output; the verdict counts all the same.
			_, _ = stdout.Write(body)
		case 'A':
			return true, nil
		case 'R':
			return false, nil
		default:
			return false, fmt.Errorf("a frame of type %q", head[0])
		}
	}
}
