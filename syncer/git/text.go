package git

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// printable makes text safe to show on somebody's terminal: control characters,
// which could move the cursor or change colours, become question marks.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// redactor takes secrets out of text (R14).
type redactor struct{ replace *strings.Replacer }

// newRedactor knows the given secrets; empty ones are passed over.
func newRedactor(secrets ...string) redactor {
	var pairs []string
	for _, s := range secrets {
		if s != "" {
			pairs = append(pairs, s, "***")
		}
	}
	return redactor{strings.NewReplacer(pairs...)}
}

func (r redactor) text(s string) string { return r.replace.Replace(s) }

// hide returns err with the secrets taken out of its text. When there are some,
// what it wraps cannot be reached any more, but errors.Is still knows its classes.
func (r redactor) hide(err error) error {
	if err == nil {
		return nil
	}
	if s := r.text(err.Error()); s != err.Error() {
		return redacted{s, err}
	}
	return err
}

type redacted struct {
	text string
	of   error
}

func (r redacted) Error() string { return r.text }

func (r redacted) Is(class error) bool { return errors.Is(r.of, class) }

// ofClass is an error of a class that somebody branches on, with a text of its own.
func ofClass(class error, format string, args ...any) error {
	return classed{fmt.Sprintf(format, args...), class}
}

type classed struct {
	text  string
	class error
}

func (c classed) Error() string { return c.text }

func (c classed) Unwrap() error { return c.class }
