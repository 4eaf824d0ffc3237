package forge

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
)

const (
	maxSecretFile = 64 << 10
	maxSecrets    = 4 // lines of a file of webhook secrets
)

// secretFile is a file that holds a token or secrets. It is read anew whenever
// they are needed, so a change counts at once. What it holds is in no error.
type secretFile struct {
	path string
	log  *slog.Logger

	mu     sync.Mutex
	warned os.FileMode // the permissions that were complained about
}

// lines gives what is in the file, without empty lines. Each line is printable
// ASCII, so that it can stand in a header.
func (s *secretFile) lines(most int) ([]string, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return nil, err // says the path and the reason
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	s.warn(info.Mode().Perm())
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxSecretFile {
		return nil, fmt.Errorf("%s is too large to be a file of secrets: more than %d bytes", s.path, maxSecretFile)
	}
	var lines []string
	n := 0
	for line := range strings.Lines(string(content)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
			return nil, fmt.Errorf("%s:%d: only printable ASCII characters can be in a token or secret", s.path, n)
		}
		if len(lines) == most {
			return nil, fmt.Errorf("%s:%d: more lines than the %d that are allowed", s.path, n, most)
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s is empty", s.path)
	}
	return lines, nil
}

// warn says once that others can read the file. It is no error: a mounted secret
// often has a mode that nobody can choose.
func (s *secretFile) warn(mode os.FileMode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if mode&0o077 != 0 && mode != s.warned {
		s.log.Warn("others can read the file of a secret; chmod 600 it", "file", s.path, "mode", fmt.Sprintf("%04o", mode))
	}
	s.warned = mode
}

// token is the one line of a token file.
func (s *secretFile) token() (string, error) {
	lines, err := s.lines(1)
	if err != nil {
		return "", fmt.Errorf("read the forge's token: %w", err)
	}
	return lines[0], nil
}
