package render

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"headway.dev/headway/api"
)

// data checks a file whose bytes go into an object.
func (u *unit) data(real string, ref ref) error {
	u.touch(real)
	if f, _ := u.r.index.file(real); f.Size > api.MaxFileBytes {
		u.problems.add(tooLarge(real, int(f.Size)))
		return nil
	}
	data, err := u.r.index.read(real)
	if err != nil {
		return err
	}
	u.note(data, measure{longest: len(data)})
	if why := foreign(data); why != "" {
		u.problems.add(api.Problem{Path: real, Line: 1, Reason: why + "; " + ref.at.String() + " uses it"})
	} else if ref.want == wantVariables {
		u.variableLines(real, data)
	}
	return nil
}

// variableLines checks the lines of a file of variables. A line that is none may
// be a part of a secret, so it is not repeated.
func (u *unit) variableLines(real string, data []byte) {
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := bytes.TrimLeftFunc(bytes.TrimRight(line, "\r\n"), unicode.IsSpace)
		if n == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		key, _, _ := bytes.Cut(text, []byte("="))
		switch {
		case len(line) >= bufio.MaxScanTokenSize:
			u.fail(api.Place{Path: real, Line: n}, "", fmt.Sprintf("a line of more than %d bytes, which kustomize leaves out with all that follows: put the value in a file of its own", bufio.MaxScanTokenSize-1))
		case len(key) == 0 || !utf8.Valid(line) || bytes.ContainsFunc(key, func(r rune) bool {
			return r > 'z' || !strings.ContainsRune("-._", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
		}):
			u.fail(api.Place{Path: real, Line: n, Column: 1}, "", "is no KEY=value: a key has letters, digits, dots, dashes and underscores")
		}
	}
}
