package git

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"golang.org/x/crypto/ssh"
)

// Signers are those who may sign commits: keys of ssh and keys of OpenPGP. The
// zero value is nobody.
type Signers struct {
	ssh []signer
	pgp openpgp.EntityList
}

// Len is how many keys there are.
func (s *Signers) Len() int { return len(s.ssh) + len(s.pgp) }

// signer is one line of an allowed signers file.
type signer struct {
	where      string // file:line
	principals string // patterns, separated by commas
	authority  bool   // the key signs certificates, not commits
	namespaces string // patterns; "" is any
	after      time.Time
	before     time.Time
	key        ssh.PublicKey
}

// Bounds of the files that name signers.
const (
	maxSignersFile = 4 << 20
	maxSigners     = 10_000
)

// SignersAt reads the signers that the files at a commit name; an empty path is
// none. A file that is missing or cannot be read is an error, never nobody's and
// never anybody's permission.
func (o *Objects) SignersAt(ctx context.Context, commit, allowed, keyring string) (Signers, error) {
	var s Signers
	for _, f := range []struct {
		path string
		add  func(name string, content []byte) error
	}{{allowed, s.AddAllowed}, {keyring, s.AddKeyring}} {
		if f.path == "" {
			continue
		}
		content, err := o.ShowFile(ctx, commit, f.path)
		if err == nil {
			err = f.add(f.path, content)
		}
		if err != nil {
			return Signers{}, fmt.Errorf("read the allowed signers: %w", err)
		}
	}
	return s, nil
}

// AddAllowed adds the keys of a file in git's format of allowed signers (see ALLOWED
// SIGNERS in ssh-keygen(1)). A time without a zone is UTC. A line that cannot be
// read is an error; all of them are named, as name:line: reason.
func (s *Signers) AddAllowed(name string, content []byte) error {
	if len(content) > maxSignersFile {
		return fmt.Errorf("%s: %d bytes are too many, at most %d are read", name, len(content), maxSignersFile)
	}
	var problems []error
	for i, line := range bytes.Split(content, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		one, err := parseSigner(text)
		if err != nil {
			if len(problems) < 20 {
				problems = append(problems, fmt.Errorf("%s:%d: %w", name, i+1, err))
			}
			continue
		}
		one.where = fmt.Sprintf("%s:%d", name, i+1)
		if s.ssh = append(s.ssh, one); len(s.ssh) > maxSigners {
			return fmt.Errorf("%s: more than %d signers", name, maxSigners)
		}
	}
	return errors.Join(problems...)
}

// parseSigner reads "principals [options] type key [comment]".
func parseSigner(line string) (s signer, err error) {
	if s.principals, line, err = firstWord(line); err != nil {
		return s, err
	}
	if !keyType(line) {
		var options string
		options, line = cutOptions(line)
		if err := s.options(options); err != nil {
			return s, err
		}
	}
	if s.key, err = parseKey(line); err != nil {
		return s, err
	}
	if weak(s.key.Type()) && s.key.Type() != ssh.KeyAlgoRSA { // whose keys make stronger signatures too
		return s, fmt.Errorf("keys of type %s are too weak", s.key.Type())
	}
	if _, is := s.key.(*ssh.Certificate); is {
		return s, errors.New("a certificate is no signer: name the key of its authority, with cert-authority")
	}
	return s, nil
}

// cutOptions cuts a line at the first blank that is not in quotes.
func cutOptions(line string) (options, rest string) {
	quoted := false
	for i := range len(line) {
		switch {
		case line[i] == '"' && (i == 0 || line[i-1] != '\\'):
			quoted = !quoted
		case !quoted && (line[i] == ' ' || line[i] == '\t'):
			return line[:i], strings.TrimSpace(line[i:])
		}
	}
	return line, ""
}

// firstWord cuts off the first word, which may be in quotes.
func firstWord(line string) (word, rest string, err error) {
	if inner, quoted := strings.CutPrefix(line, `"`); quoted {
		word, rest, ok := strings.Cut(inner, `"`)
		if !ok {
			return "", "", errors.New("the quotes around the principals do not end")
		}
		line = word
		return notEmpty(line, strings.TrimSpace(rest))
	}
	end := strings.IndexAny(line, " \t")
	if end < 0 {
		return "", "", errors.New("a line has principals, options if any, the type of a key and the key")
	}
	return notEmpty(line[:end], strings.TrimSpace(line[end:]))
}

func notEmpty(word, rest string) (string, string, error) {
	if word == "" {
		return "", "", errors.New("no principals")
	}
	return word, rest, nil
}

// keyType says whether a line begins with the type of a key.
func keyType(line string) bool {
	for _, prefix := range []string{"ssh-", "ecdsa-", "sk-", "rsa-"} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return false
}

// parseKey reads "type key [comment]".
func parseKey(text string) (ssh.PublicKey, error) {
	f := strings.Fields(text)
	if len(f) < 2 || !keyType(f[0]) {
		return nil, errors.New("no key: its type and then the key itself must follow")
	}
	raw, err := base64.StdEncoding.DecodeString(f[1])
	if err != nil {
		return nil, errors.New("the key is not in base64")
	}
	key, err := ssh.ParsePublicKey(raw)
	if err != nil {
		return nil, fmt.Errorf("the key cannot be read: %w", err)
	}
	if key.Type() != f[0] {
		return nil, fmt.Errorf("the key is of type %s and not %s", key.Type(), f[0])
	}
	return key, nil
}

// options reads name or name="value", separated by commas.
func (s *signer) options(text string) error {
	seen := map[string]bool{}
	for text != "" {
		end := strings.IndexAny(text, `=,`)
		name, value, valued := text, "", false
		switch {
		case end < 0:
			text = ""
		case text[end] == ',':
			name, text = text[:end], text[end+1:]
		default:
			var err error
			name, valued = text[:end], true
			if value, text, err = quotedValue(text[end+1:]); err != nil {
				return fmt.Errorf("option %s: %w", name, err)
			}
		}
		name = strings.ToLower(name)
		if seen[name] {
			return fmt.Errorf("option %s is given twice", name)
		}
		seen[name] = true
		var err error
		switch {
		case name == "cert-authority" && !valued:
			s.authority = true
		case name == "namespaces" && value != "":
			s.namespaces = value
		case name == "valid-after" && valued:
			s.after, err = parseTime(value)
		case name == "valid-before" && valued:
			s.before, err = parseTime(value)
		default:
			return fmt.Errorf("unknown option %.60q; known are cert-authority, namespaces=\"…\", valid-after=\"…\" and valid-before=\"…\"", name)
		}
		if err != nil {
			return fmt.Errorf("option %s: %w", name, err)
		}
	}
	if !s.after.IsZero() && !s.before.IsZero() && !s.after.Before(s.before) {
		return errors.New("valid-after is not before valid-before")
	}
	return nil
}

// quotedValue cuts "value" and the comma after it off.
func quotedValue(text string) (value, rest string, err error) {
	inner, ok := strings.CutPrefix(text, `"`)
	var out strings.Builder
	for i := 0; ok && i < len(inner); i++ {
		switch {
		case inner[i] == '\\' && i+1 < len(inner) && inner[i+1] == '"':
			out.WriteByte('"')
			i++
		case inner[i] == '"':
			rest := inner[i+1:]
			if after, more := strings.CutPrefix(rest, ","); more && after != "" {
				return out.String(), after, nil
			}
			if rest != "" {
				return "", "", errors.New("a comma and another option must follow")
			}
			return out.String(), "", nil
		default:
			out.WriteByte(inner[i])
		}
	}
	return "", "", errors.New("its value must be in quotes")
}

// parseTime reads YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with a Z or without.
func parseTime(value string) (time.Time, error) {
	digits := strings.TrimSuffix(strings.TrimSuffix(value, "Z"), "UTC")
	layout, ok := map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}[len(digits)]
	if !ok {
		return time.Time{}, fmt.Errorf("%.40q is no time such as 20261231 or 20261231235959Z", value)
	}
	t, err := time.Parse(layout, digits)
	if err != nil {
		return time.Time{}, fmt.Errorf("%.40q is no time such as 20261231 or 20261231235959Z", value)
	}
	return t, nil
}

// valid says whether the line counts at a time.
func (s signer) valid(at time.Time) error {
	switch {
	case !s.after.IsZero() && at.Before(s.after):
		return fmt.Errorf("the key of %s is valid from %s on", s.where, s.after.Format(time.RFC3339))
	case !s.before.IsZero() && at.After(s.before):
		return fmt.Errorf("the key of %s has expired: it was valid until %s", s.where, s.before.Format(time.RFC3339))
	}
	return nil
}

// matchList says whether text matches a list of patterns with * and ?, separated by
// commas. A pattern after a ! refuses what it matches, whatever else does.
func matchList(patterns, text string) bool {
	matched := false
	for p := range strings.SplitSeq(patterns, ",") {
		p, negated := strings.CutPrefix(strings.TrimSpace(p), "!")
		if !matchPattern(p, text) {
			continue
		}
		if negated {
			return false
		}
		matched = true
	}
	return matched
}

// matchPattern matches * and ?. It takes time in proportion to the product of
// both lengths at most.
func matchPattern(p, text string) bool {
	star, back := -1, 0 // the last *, and from where on it is tried
	i, j := 0, 0
	for j < len(text) {
		switch {
		case i < len(p) && p[i] == '*':
			star, back = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == text[j]):
			i, j = i+1, j+1
		case star >= 0:
			back++
			i, j = star+1, back
		default:
			return false
		}
	}
	return strings.Trim(p[i:], "*") == ""
}

// AddKeyring adds the keys of an armored OpenPGP keyring, which may have several
// blocks.
func (s *Signers) AddKeyring(name string, content []byte) error {
	if len(content) > maxSignersFile {
		return fmt.Errorf("%s: %d bytes are too many, at most %d are read", name, len(content), maxSignersFile)
	}
	var keys openpgp.EntityList
	in := bufio.NewReader(bytes.NewReader(content))
	for {
		block, err := armor.Decode(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: not an armored keyring: %w", name, err)
		}
		switch block.Type {
		case openpgp.PublicKeyType:
		case openpgp.PrivateKeyType:
			return fmt.Errorf("%s: it holds a private key, which everybody who may read the repository has now: replace that key", name)
		default:
			return fmt.Errorf("%s: %.60q is no block of public keys", name, block.Type)
		}
		some, err := openpgp.ReadKeyRing(block.Body)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if keys = append(keys, some...); len(keys) > maxSigners {
			return fmt.Errorf("%s: more than %d keys", name, maxSigners)
		}
	}
	if len(keys) == 0 {
		return fmt.Errorf("%s: no armored public key in it", name)
	}
	if slices.ContainsFunc(keys, func(e *openpgp.Entity) bool { return e.PrivateKey != nil }) {
		return fmt.Errorf("%s: it holds a private key, which everybody who may read the repository has now: replace that key", name)
	}
	s.pgp = append(s.pgp, keys...)
	return nil
}
