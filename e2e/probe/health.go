package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// healthy answers probes at port 8080, and by gRPC at port 9090: /is/<name> with 200
// unless the name is bad. $BAD names those that are at first, /bad?<name> and
// /good?<name> change it. /mark?<word> prints the word, and so does the signal that ends
// it.
func healthy() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		fmt.Println("signal", <-signals)
		stop()
	}()
	var mu sync.Mutex
	bad := strings.Fields(os.Getenv("BAD"))
	h := health.NewServer()
	tell := func() {
		state := grpc_health_v1.HealthCheckResponse_SERVING
		if slices.Contains(bad, "grpc") {
			state = grpc_health_v1.HealthCheckResponse_NOT_SERVING
		}
		h.SetServingStatus("", state)
	}
	tell()
	http.HandleFunc("/is/", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if slices.Contains(bad, strings.TrimPrefix(r.URL.Path, "/is/")) {
			http.Error(w, "bad", http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/bad", func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		bad = append(bad, r.URL.RawQuery)
		tell()
	})
	http.HandleFunc("/good", func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		bad = slices.DeleteFunc(bad, func(b string) bool { return b == r.URL.RawQuery })
		tell()
	})
	http.HandleFunc("/mark", func(_ http.ResponseWriter, r *http.Request) { fmt.Println("mark", r.URL.RawQuery) })
	lis, err := net.Listen("tcp", ":9090")
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(g, h)
	go func() {
		if err := g.Serve(lis); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			fmt.Fprintln(os.Stderr, "grpc:", err)
		}
	}()
	defer g.Stop()
	return serve(ctx)
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

// await asks a URL until the answer is good.
func await(ctx context.Context, url string) error {
	for good(url) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
