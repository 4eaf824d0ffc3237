package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/spf13/cobra"
)

// profileFlag is hidden: it is for those who work on Headway.
func profileFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "profile", "", "loopback address to serve Go's profiles on, /debug/pprof/")
	if err := cmd.Flags().MarkHidden("profile"); err != nil {
		panic(err) // the flag is defined a line above
	}
}

// serveProfiles serves Go's profiles until it is closed. Everybody on this
// machine can read them, so they are off unless asked for.
func serveProfiles(address string) (io.Closer, error) {
	if address == "" {
		return io.NopCloser(nil), nil
	}
	host, _, err := net.SplitHostPort(address)
	if err == nil && !net.ParseIP(host).IsLoopback() {
		err = errors.New("profiles are served on loopback only")
	}
	if err != nil {
		return nil, fmt.Errorf("--profile %q: %w: give one such as 127.0.0.1:6060", address, err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--profile: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }() // it ends with close, and nothing depends on it
	return server, nil
}
