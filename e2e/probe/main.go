// Command probe is the program inside the test images: it serves, talks, sleeps
// and fails on request.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	verb := ""
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	if err := run(verb, os.Args[min(2, len(os.Args)):]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(verb string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch verb {
	case "serve": // answer every request with $ANSWER until SIGTERM
		http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getenv("ANSWER")) })
		http.HandleFunc("/print", func(w http.ResponseWriter, r *http.Request) { // print ?n= numbered lines, then answer
			n, err := strconv.Atoi(r.URL.Query().Get("n"))
			if err == nil {
				err = lines(n, 0)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			fmt.Fprint(w, "printed")
		})
		http.Handle("/burn", &burner{})
		http.HandleFunc("/host", func(w http.ResponseWriter, _ *http.Request) { // who answers
			name, err := os.Hostname()
			if err != nil {
				name = err.Error()
			}
			fmt.Fprint(w, name)
		})
		http.HandleFunc("/peer", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) })
		http.HandleFunc("/via", func(w http.ResponseWriter, r *http.Request) { // what ?url= answers, asked over a new connection
			client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			text, err := get(client, r.URL.Query().Get("url"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			fmt.Fprint(w, text)
		})
		http.HandleFunc("/read", func(w http.ResponseWriter, r *http.Request) { // the file ?path=
			data, err := os.ReadFile(r.URL.Query().Get("path"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			_, _ = w.Write(data)
		})
		http.HandleFunc("/write", func(w http.ResponseWriter, r *http.Request) { // ?n= bytes to the file ?path=
			n, err := strconv.Atoi(r.URL.Query().Get("n"))
			if err == nil {
				err = os.WriteFile(r.URL.Query().Get("path"), make([]byte, n), 0o644)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
		http.HandleFunc("/resolve", func(w http.ResponseWriter, r *http.Request) { // the addresses of ?name=
			found, err := net.DefaultResolver.LookupHost(r.Context(), r.URL.Query().Get("name"))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			slices.Sort(found)
			fmt.Fprint(w, strings.Join(found, " "))
		})
		return serve(ctx)
	case "healthy": // serve probes, which can be told to fail
		return healthy()
	case "good": // ask a URL once
		return good(args[0])
	case "await": // ask a URL until the answer is good
		return await(ctx, args[0])
	case "hammer": // ask a URL all the time, and tell how that went
		return hammer(ctx, args[0])
	case "sleep":
		<-ctx.Done()
		return nil
	case "exit":
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		os.Exit(code)
	case "copy": // standard input, until it ends
		_, err := io.Copy(os.Stdout, os.Stdin)
		return err
	case "env":
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
		return nil
	case "lines": // N numbered lines of 100 bytes, PAUSE apart in each thousand, then sleep
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		pause, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		if err := lines(n, pause); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("unknown verb %q", verb)
}

// serve answers at port $PORT, else 8080, until ctx ends, then finishes the requests it
// has.
func serve(ctx context.Context) error {
	port := os.Getenv("PORT")
	if port == "" {
		port = "8080"
	}
	s := &http.Server{Addr: ":" + port}
	done := make(chan error, 1)
	go func() { <-ctx.Done(); done <- s.Shutdown(context.Background()) }()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-done
}

// lines prints n numbered lines of 100 bytes.
func lines(n int, pause time.Duration) error {
	w := bufio.NewWriter(os.Stdout)
	for i := range n {
		if _, err := fmt.Fprintf(w, "line %08d %085d\n", i, i); err != nil {
			return err
		}
		if i%1000 == 999 {
			if err := w.Flush(); err != nil {
				return err
			}
			time.Sleep(pause)
		}
	}
	return w.Flush()
}
