package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// serve is a registry on loopback with the substitutes, until ctx is done. It is meant as
// the mirror of every registry: what it does not have, nobody has.
func serve(ctx context.Context, suite, programs, address string) error {
	names, err := suiteImages(ctx, suite)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	defer server.Close()

	host := listener.Addr().String()
	if err := push(ctx, host, names, programs); err != nil {
		return err
	}
	if err := os.WriteFile(address, []byte("http://"+host+"\n"), 0o644); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// suiteImages are the names of the images that the suite may use.
func suiteImages(ctx context.Context, suite string) ([]string, error) {
	out, err := exec.CommandContext(ctx, suite, "--list-images").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --list-images: %w", suite, err)
	}
	names := strings.Fields(string(out))
	if len(names) == 0 {
		return nil, fmt.Errorf("%s --list-images names none", suite)
	}
	return names, nil
}

// push puts each image that somebody can stand in for into the registry at host.
func push(ctx context.Context, host string, names []string, programs string) error {
	made, begun := map[string]v1.Image{}, map[string]v1.Image{}
	for _, ref := range names {
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("image %q of the suite: %w", ref, err)
		}
		kind := filepath.Base(tag.RepositoryStr())
		s, ok := substitutes(programs)[kind]
		// The suite counts on these two not to be there, or not for everybody.
		if !ok || strings.HasPrefix(tag.RegistryStr(), "invalid.") || strings.Contains(ref, "k8s-authenticated-test") {
			continue
		}
		if begun[s.base] == nil {
			files, err := bases(programs)[s.base]()
			if err != nil {
				return err
			}
			if begun[s.base], err = baseImage(files); err != nil {
				return fmt.Errorf("make the image %s: %w", s.base, err)
			}
		}
		if made[kind] == nil {
			if made[kind], err = s.image(begun[s.base]); err != nil {
				return fmt.Errorf("make the image %s: %w", kind, err)
			}
		}
		// Images of one kind and different tags differ: a rollout from one to the other
		// would else change nothing.
		image, err := labelled(made[kind], ref)
		if err != nil {
			return err
		}
		to, err := name.NewTag(host + "/" + tag.RepositoryStr() + ":" + tag.TagStr())
		if err != nil {
			return err
		}
		if err := remote.Write(to, image, remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("push %s: %w", ref, err)
		}
	}
	missing := slices.DeleteFunc([]string{"agnhost", "busybox", "pause"}, func(k string) bool { return made[k] != nil })
	if len(missing) > 0 {
		return errors.New("the suite names no image " + strings.Join(missing, ", ") + ": its images have other names now")
	}
	return nil
}
