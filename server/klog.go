package server

import (
	"context"
	"log/slog"

	"k8s.io/klog/v2"
)

// RouteKlog sends what Kubernetes' libraries log to log: their errors only, for
// they tell of every step. It changes the whole process, so cmd calls it once,
// before anything else runs.
func RouteKlog(log *slog.Logger) {
	klog.SetSlogLogger(slog.New(errorsOnly{log.Handler()}))
}

// errorsOnly passes on records of level Error.
type errorsOnly struct{ slog.Handler }

func (errorsOnly) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (h errorsOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return errorsOnly{h.Handler.WithAttrs(attrs)}
}

func (h errorsOnly) WithGroup(name string) slog.Handler { return errorsOnly{h.Handler.WithGroup(name)} }
