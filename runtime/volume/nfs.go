package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// nfsTimeout is what one try to mount may take.
const nfsTimeout = 30 * time.Second

// mostSaid is how much of what the program says goes into an error.
const mostSaid = 512

// ensureNFS mounts a folder of an NFS server for a pod, with the machine's own program.
func (v *Volumes) ensureNFS(ctx context.Context, uid types.UID, w Volume) error {
	target := v.memory(uid, w.Name)
	mounted, err := isMount(target)
	if mounted {
		return nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	source, err := nfsSource(w.Server, w.Path)
	if err != nil {
		return err
	}
	program, err := v.nfsProgram()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	args := []string{source, target}
	options := slices.Clone(w.Options)
	if w.ReadOnly {
		options = append(options, "ro")
	}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	timed, cancel := context.WithTimeout(ctx, v.cfg.NFSTimeout)
	defer cancel()
	cmd := exec.CommandContext(timed, program, args...)
	cmd.WaitDelay = time.Second // a child of its own may hold its output open
	said := &shortened{}
	cmd.Stdout, cmd.Stderr = said, said
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case timed.Err() != nil:
		return fmt.Errorf("NFS server %s does not answer: %s was not mounted in %s", w.Server, source, v.cfg.NFSTimeout)
	case err != nil:
		return fmt.Errorf("mount %s: %w: %s", source, err, said)
	}
	return nil
}

// nfsSource names a folder of a server as mount.nfs wants it.
func nfsSource(server, path string) (string, error) {
	if addr, err := netip.ParseAddr(server); err == nil {
		if server = addr.String(); addr.Is6() {
			server = "[" + server + "]"
		}
	} else if problems := validation.IsDNS1123Subdomain(strings.ToLower(server)); len(problems) > 0 {
		return "", fmt.Errorf("NFS server %q is neither an address nor a name: %s", server, strings.Join(problems, "; "))
	}
	if !filepath.IsAbs(path) || strings.ContainsAny(path, "\x00\n") {
		return "", fmt.Errorf("path %q of the NFS server is not absolute", path)
	}
	return server + ":" + path, nil
}

func (v *Volumes) nfsProgram() (string, error) {
	candidates := []string{v.cfg.NFSProgram}
	if v.cfg.NFSProgram == "" {
		candidates = []string{"/sbin/mount.nfs", "/usr/sbin/mount.nfs", "/usr/local/sbin/mount.nfs"}
	}
	for _, path := range candidates {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errors.New("this node has no NFS client: install nfs-common (Debian, Ubuntu) or nfs-utils, which have mount.nfs")
}

// shortened keeps the beginning of what is written to it.
type shortened struct{ text bytes.Buffer }

func (s *shortened) Write(p []byte) (int, error) {
	s.text.Write(p[:min(len(p), mostSaid-min(s.text.Len(), mostSaid))])
	return len(p), nil
}

func (s *shortened) String() string {
	return strings.ToValidUTF8(strings.Join(strings.Fields(s.text.String()), " "), "?")
}
