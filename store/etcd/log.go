package etcd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger hands etcd's warnings and errors to log. Everything below is
// etcd's own bookkeeping, and what it always warns of about our way of running it
// is left out too.
func newLogger(log *slog.Logger) *zap.Logger {
	return zap.New(&bridge{log: log})
}

// expected are messages that say nothing about this cluster.
func expected(message string) bool {
	return slices.Contains([]string{
		"Running http and grpc server on single port. This is not recommended for production.", // there is no client listener
		"simple token is not cryptographically signed",                                         // etcd's own users are not used
		"failed to receive watch request from gRPC stream",                                     // a watch ended
		"failed to send watch response to gRPC stream",
		"Failed to detect schema version", // of a new database, until its first snapshot of the raft state
		"failed to update storage version",
		"failed to lock file",     // of the log, which is purged later then
		"failed to apply request", // the caller has the error
	}, message) || strings.Contains(message, "cannot campaign at term") // so soon after its start; it tries again
}

// bridge is a zap core that writes to slog.
type bridge struct {
	log    *slog.Logger
	fields []zapcore.Field
}

func (b *bridge) Enabled(l zapcore.Level) bool { return l >= zapcore.WarnLevel }

func (b *bridge) With(fields []zapcore.Field) zapcore.Core {
	return &bridge{log: b.log, fields: append(slices.Clip(b.fields), fields...)}
}

func (b *bridge) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !b.Enabled(e.Level) || expected(e.Message) {
		return c
	}
	return c.AddCore(e, b)
}

func (b *bridge) Write(e zapcore.Entry, fields []zapcore.Field) error {
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && ofStopping(err) {
			return nil
		}
	}
	level := slog.LevelWarn
	if e.Level >= zapcore.ErrorLevel {
		level = slog.LevelError
	}
	enc := zapcore.NewMapObjectEncoder()
	var names []string
	for _, f := range append(slices.Clip(b.fields), fields...) {
		f.AddTo(enc)
		names = append(names, f.Key)
	}
	slices.Sort(names)
	attrs := []slog.Attr{slog.String("etcd", e.Message)}
	for _, name := range slices.Compact(names) {
		if v, ok := enc.Fields[name]; ok {
			attrs = append(attrs, slog.Any(name, v))
		}
	}
	b.log.LogAttrs(context.Background(), level, "etcd", attrs...)
	return nil
}

func (b *bridge) Sync() error { return nil }

// ofStopping says whether err only means that this member is being stopped.
func ofStopping(err error) bool {
	return errors.Is(err, net.ErrClosed) || slices.Contains([]string{"etcdserver: request cancelled", "etcdserver: server stopped"}, err.Error())
}
