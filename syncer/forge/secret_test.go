package forge

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestSecretFile(t *testing.T) {
	var log bytes.Buffer
	path := writeFile(t, "  one-s3cret \n\n two-s3cret\r\n")
	s := &secretFile{path: path, log: slog.New(slog.NewTextHandler(&log, nil))}
	if got, err := s.lines(4); err != nil || !slices.Equal(got, []string{"one-s3cret", "two-s3cret"}) {
		t.Errorf("%q, %v", got, err)
	}
	if log.Len() > 0 {
		t.Errorf("0600 is complained about: %s", &log)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.lines(4); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "chmod 600"); n != 1 || !strings.Contains(log.String(), path) {
		t.Errorf("warned %d times: %s", n, &log)
	}
	if err := os.WriteFile(path, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.token(); err != nil || got != "new" {
		t.Errorf("a changed file: %q, %v", got, err)
	}
	for name, content := range map[string]string{
		"empty": " \n\n", "control": "s3cret\x00", "unicode": "s3crét", "many": "s3cret\ns3cret", "large": strings.Repeat("s3cret\n", 20000),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.token(); err == nil {
			t.Errorf("%s: %q", name, got)
		} else if strings.Contains(err.Error(), "s3cr") || !strings.Contains(err.Error(), path) {
			t.Errorf("R14: %s: %v", name, err)
		}
	}
	s.path = filepath.Join(t.TempDir(), "none")
	if _, err := s.token(); err == nil || !strings.Contains(err.Error(), s.path) {
		t.Errorf("no file: %v", err)
	}
	if strings.Contains(log.String(), "s3cret") {
		t.Errorf("R14: %s", &log)
	}
}
