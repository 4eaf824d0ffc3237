// Command standin is what the images of real manifests are replaced by: it does what
// those who wrote a manifest count on from their image, as far as a pod's state tells.
// It is called by many names, like busybox, which the image has beside it for shells
// and their tools.
//
// Without a name that it knows it answers 200 at every path of each port of $PORTS, by
// HTTP, until it is told to stop.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	switch {
	case name == "perl": // prints digits of pi, and is done
		fmt.Println("3.14159265358979")
		return nil
	case name == "locust": // one run of a load test
		time.Sleep(2 * time.Second)
		return nil
	case name == "podcli": // podcli check http HOST:PORT/PATH
		return good("http://" + args[len(args)-1])
	case name == "nginx" && len(args) == 2 && args[0] == "-s":
		return syscall.Kill(1, syscall.SIGTERM)
	}
	return serve(name == "server")
}

// serve answers until SIGTERM, SIGINT or SIGQUIT. With tired it says after ten seconds
// that it is not well, as the image of Kubernetes' liveness example does.
func serve(tired bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	defer stop()
	start := time.Now()
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tired && time.Since(start) > 10*time.Second {
			http.Error(w, "tired", http.StatusInternalServerError)
		}
	})
	ended := make(chan error, 1)
	for port := range strings.FieldsSeq(os.Getenv("PORTS")) {
		server := &http.Server{Addr: ":" + port, Handler: answer}
		go func() { ended <- fmt.Errorf("port %s: %w", port, server.ListenAndServe()) }()
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// good asks a URL once.
func good(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
