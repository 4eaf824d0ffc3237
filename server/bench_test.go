package server

import (
	"crypto/x509"
	"log/slog"
	"net"
	"testing"

	"headway.dev/headway/server/certs"
	"headway.dev/headway/store"
	"headway.dev/headway/store/memory"
)

// BenchmarkNew is the server's share of a cold start.
func BenchmarkNew(b *testing.B) {
	st := store.New(memory.New(), store.Options{})
	must(b, st.Load(b.Context()))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer l.Close()
	b.ReportAllocs()
	for b.Loop() {
		_, err := New(Config{Store: st, Listener: l, Certificate: (&certs.Serving{}).Get, CA: x509.NewCertPool(), Log: slog.New(slog.DiscardHandler)})
		must(b, err)
	}
}
