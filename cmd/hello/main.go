// Command hello is the demo application of repo-template: a small web page, a
// one-off job and a periodic tick, in one static program. The images
// headway.local/hello:1 and headway.local/hello:2 differ in the environment
// variable VERSION only.
package main

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil))
	verb := "web"
	if len(os.Args) > 1 {
		verb = os.Args[1]
	}
	var err error
	switch verb {
	case "web":
		err = web(log, os.Getenv("ADDR"))
	case "migrate":
		log.Info("migration done", "tables", 3)
	case "tick":
		log.Info("tick", "at", time.Now().UTC().Format(time.RFC3339))
	default:
		err = fmt.Errorf("unknown verb %q: use web, migrate or tick", verb)
	}
	if err != nil {
		log.Error("ended", "error", err)
		os.Exit(1)
	}
}

// web serves the page until SIGTERM, then finishes the requests it has.
func web(log *slog.Logger, addr string) error {
	if addr == "" {
		addr = ":8080"
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name: %w", err)
	}
	facts := page{Version: os.Getenv("VERSION"), Host: host, Greeting: os.Getenv("GREETING")}
	if facts.Greeting == "" {
		facts.Greeting = "Hello from Headway"
	}
	server := &http.Server{Addr: addr, Handler: routes(facts), ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		done <- server.Shutdown(limit)
	}()
	log.Info("listening", "addr", addr, "version", facts.Version)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	log.Info("stopped")
	return <-done
}

type page struct{ Version, Host, Greeting string }

func routes(facts page) http.Handler {
	view := template.Must(template.New("page").Parse(html))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, facts.Version) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := view.Execute(w, facts); err != nil {
			slog.Warn("write page", "error", err)
		}
	})
	return mux
}

const html = `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Greeting}}</title>
<style>
body{margin:0;min-height:100vh;display:grid;place-items:center;font:18px/1.5 system-ui,sans-serif;background:#0f2a3a;color:#e8f1f5}
main{max-width:34rem;padding:2rem}
h1{font-size:2.4rem;margin:0 0 .5rem}
code{background:#163b50;padding:.1em .4em;border-radius:.3em}
</style>
<main>
<h1>{{.Greeting}}</h1>
<p>This is version <code>{{.Version}}</code>, served by the pod <code>{{.Host}}</code>.</p>
<p>Change <code>web/deployment.yaml</code>, commit, and <code>git push</code>: this page follows.</p>
</main></html>
`
