package keeper

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// hookServer answers one hook with the given bytes and returns what it was told.
func hookServer(t *testing.T, answer []byte) (socket string, told <-chan hello) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	c := make(chan hello, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var head [5]byte
		var hi hello
		if _, err := io.ReadFull(conn, head[:]); err == nil && head[0] == 'H' {
			body := make([]byte, binary.BigEndian.Uint32(head[1:]))
			if _, err := io.ReadFull(conn, body); err == nil {
				if err := json.Unmarshal(body, &hi); err != nil {
					t.Error(err)
				}
			}
		}
		c <- hi
		if _, err := conn.Write(answer); err != nil {
			t.Error(err)
		}
	}()
	return socket, c
}

func hookFrame(kind byte, body string) string {
	return string(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))) + body
}

func TestHook(t *testing.T) {
	for name, c := range map[string]struct {
		hook, answer, shows string
		code                int
	}{
		"accepted":            {"pre-receive", hookFrame('P', "hello\n") + hookFrame('P', "world\n") + hookFrame('A', ""), "hello\nworld\n", 0},
		"refused":             {"pre-receive", hookFrame('P', "no\n") + hookFrame('R', ""), "no\n", 1},
		"server gone":         {"pre-receive", hookFrame('P', "wait\n"), "the server stopped before it answered", 1},
		"server gone in text": {"pre-receive", hookFrame('P', "wait\n")[:7], "the server stopped before it answered", 1},
		"unknown frame":       {"pre-receive", hookFrame('X', ""), "a frame of type", 1},
		"too large":           {"pre-receive", "P\xff\xff\xff\xff", "a frame of 4294967295 bytes", 1},
		"after":               {"post-receive", hookFrame('P', "healthy\n") + hookFrame('A', ""), "healthy\n", 0},
		"after, server gone":  {"post-receive", "", "cannot be shown", 0},
	} {
		t.Run(name, func(t *testing.T) {
			socket, told := hookServer(t, []byte(c.answer))
			env := map[string]string{"HEADWAY_SOCKET": socket, "HEADWAY_PUSH": "id", "GIT_QUARANTINE_PATH": "/q",
				"GIT_PUSH_OPTION_COUNT": "2", "GIT_PUSH_OPTION_0": "dry-run", "GIT_PUSH_OPTION_1": "a=b"}
			var out bytes.Buffer
			code := Hook("hooks/"+c.hook, nil, strings.NewReader("a b refs/heads/main\n"), &out, func(k string) string { return env[k] })
			if code != c.code || !strings.Contains(out.String(), c.shows) {
				t.Errorf("code %d, shows %q", code, out.String())
			}
			got := <-told
			want := hello{hookVersion, c.hook, "id", "/q", "a b refs/heads/main\n", []string{"dry-run", "a=b"}}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("told %v, want %v", got, want)
			}
		})
	}
}

func TestHookWithoutServer(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		input string
		shows string
	}{
		"too many options": {map[string]string{"HEADWAY_SOCKET": "s", "HEADWAY_PUSH": "id", "GIT_PUSH_OPTION_COUNT": "21"}, "", "at most 20"},
		"no such count":    {map[string]string{"HEADWAY_SOCKET": "s", "HEADWAY_PUSH": "id", "GIT_PUSH_OPTION_COUNT": "-1"}, "", "push options"},
		"a long option": {map[string]string{"HEADWAY_SOCKET": "s", "HEADWAY_PUSH": "id", "GIT_PUSH_OPTION_COUNT": "1",
			"GIT_PUSH_OPTION_0": strings.Repeat("x", maxHookOption+1)}, "", "option of 1001 bytes"},
		"an odd option": {map[string]string{"HEADWAY_SOCKET": "s", "HEADWAY_PUSH": "id", "GIT_PUSH_OPTION_COUNT": "1",
			"GIT_PUSH_OPTION_0": "\xff"}, "", "not UTF-8"},
		"past the server": {nil, "", "headway remote"},
		"server is down":  {map[string]string{"HEADWAY_SOCKET": "/nonexistent/s", "HEADWAY_PUSH": "id"}, "", "not running"},
		"too many refs":   {map[string]string{"HEADWAY_SOCKET": "/nonexistent/s", "HEADWAY_PUSH": "id"}, strings.Repeat("x", maxHookInput+1), "too many refs"},
		"odd name":        {map[string]string{"HEADWAY_SOCKET": "/nonexistent/s", "HEADWAY_PUSH": "id"}, "a b refs/heads/\xff\n", "not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := Hook("pre-receive", nil, strings.NewReader(c.input), &out, func(k string) string { return c.env[k] })
			if code != 1 || !strings.Contains(out.String(), c.shows) {
				t.Errorf("code %d, shows %q", code, out.String())
			}
		})
	}
}

func FuzzHookVerdict(f *testing.F) {
	f.Add([]byte(hookFrame('P', "text") + hookFrame('A', "")))
	f.Add([]byte(hookFrame('R', "")))
	f.Add([]byte("P\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var out bytes.Buffer
		accepted, err := verdict(bytes.NewReader(answer), &out)
		if accepted && (err != nil || !bytes.Contains(answer, []byte{'A'})) {
			t.Errorf("accepted %q: %v", answer, err)
		}
		if out.Len() > len(answer) {
			t.Errorf("%d bytes out of %d", out.Len(), len(answer))
		}
	})
}

func FuzzHookOptions(f *testing.F) {
	f.Add("1", "dry-run")
	f.Add("3", "\xff")
	f.Add("99999999999999999999", "")
	f.Fuzz(func(t *testing.T, count, option string) {
		options, err := pushOptions(func(k string) string {
			if k == "GIT_PUSH_OPTION_COUNT" {
				return count
			}
			return option
		})
		if err == nil && (len(options) > maxHookOptions || len(options) > 0 && len(option) > maxHookOption) {
			t.Errorf("%q", options)
		}
	})
}
