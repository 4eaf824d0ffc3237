package e2e

import (
	"math/rand/v2"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// What headway remote prints for other machines works as it is printed, and not
// without the authority that it names.
func TestPushOverHTTPS(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	out, err := c.headway("remote")
	if err != nil {
		t.Fatal(err)
	}
	url := regexp.MustCompile(`https://git:\S+`).FindString(out)
	setting := regexp.MustCompile(`http\.https://\S+\.sslCAInfo`).FindString(out)
	if url == "" || setting == "" {
		t.Fatalf("headway remote printed no https URL and setting:\n%s", strings.ReplaceAll(out, "git:", ""))
	}
	noise := make([]byte, 3<<20) // more than git sends with a Content-Length
	if _, err := rand.NewChaCha8([32]byte{3}).Read(noise); err != nil {
		t.Fatal(err)
	}
	c.write(map[string]string{
		"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: far\n",
		"noise":  string(noise),
	})
	commit := c.commit("from afar")
	if out, err := c.tryGit("push", url, "main"); err == nil {
		t.Fatalf("pushed without knowing the authority:\n%s", out)
	}
	c.git("config", setting, filepath.Join(c.data(), "ca.crt"))
	c.git("push", url, "main")
	if out, err := c.headway("status", commit, "--wait", "--timeout", patience.String()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wrong := regexp.MustCompile(`git:[^@]+@`).ReplaceAllString(url, "git:wrong@")
	if out, err := c.tryGit("push", wrong, "main:other"); err == nil {
		t.Fatalf("pushed with a wrong token:\n%s", out)
	}
}

// systemd is told once the node is ready, as the unit in docs/ relies on.
func TestTellsSystemdWhenReady(t *testing.T) {
	t.Parallel()
	c := prepareCluster(t)
	path := filepath.Join(c.dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	c.env = append(c.env, "NOTIFY_SOCKET="+path)
	c.start()
	if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := socket.Read(buf)
	if err != nil || string(buf[:n]) != "READY=1" {
		t.Fatalf("told %q: %v", buf[:n], err)
	}
	c.waitReady()
}
