package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxRange bounds how many commits VerifyRange looks at.
const maxRange = 10_000

// Unsigned is a commit that no allowed signer has signed.
type Unsigned struct {
	Commit  string
	Author  string // "Name <mail>"
	Subject string
	Why     string
}

func (u Unsigned) String() string {
	return fmt.Sprintf("commit %s (%q by %s): %s", u.Commit, u.Subject, u.Author, u.Why)
}

// VerifyRange returns the commits that come with to and that none of the signers
// has signed, oldest first; from is the applied commit. It fails closed: an error
// means that the range must not be applied.
//
// # Which signers
//
// The caller reads them at from (SignersAt), not at to: who may sign is decided by
// those who were allowed before, so a commit that adds a key is signed by a key
// that is there already, and one that removes a key takes effect after it. For the
// first commit of a cluster (from is "") nobody was allowed before: the signers are
// those at to, and whoever could make the first push decides.
//
// # Which commits
//
//   - Every commit that to has and from has not, on all sides of merges. So a
//     branch that is merged must be signed as a whole.
//   - Nothing when from is to.
//   - When from has all of to, which only an allowed rewind brings: to itself.
//   - When from is "": to itself. What came before it was never applied.
//
// More than 10,000 commits are refused.
//
// # What counts as signed
//
// The signature covers the whole commit but itself. An SSH signature must be for
// the namespace git, by a key of a line that is valid both at the committer's time
// and now, or by a certificate of such an authority for one of its principals. An
// OpenPGP signature must be by a key of the keyring that may sign, that is not
// revoked, and that has expired neither when the signature was made nor now. "Now"
// is there because the other time is what the signer says: whoever finds an expired
// key could give any. It does not count for the first commit, or a cluster could
// not be built again once a key has expired. Who signs need not be the author.
func (o *Objects) VerifyRange(ctx context.Context, from, to string, signers Signers, now time.Time) ([]Unsigned, error) {
	commits, err := o.rangeOf(ctx, from, to)
	if err != nil {
		return nil, fmt.Errorf("verify the signatures up to %.60q: %w", to, err)
	}
	if from == "" {
		now = time.Time{}
	}
	var unsigned []Unsigned
	const atOnce = 64 // others may read in between
	for batch := range slices.Chunk(commits, atOnce) {
		err := o.rawCommits(ctx, batch, func(i int, raw []byte) error {
			if why := signers.verify(raw, now); why != nil {
				u := Unsigned{Commit: batch[i], Why: printable(why.Error())}
				if c, err := parseCommit(raw); err == nil {
					u.Author, u.Subject = c.Author, c.Subject
				}
				unsigned = append(unsigned, u)
			}
			return ctx.Err()
		})
		if err != nil {
			return nil, fmt.Errorf("verify the signatures up to %s: %w", to, err)
		}
	}
	return unsigned, nil
}

func (o *Objects) rangeOf(ctx context.Context, from, to string) ([]string, error) {
	if _, err := o.Commit(ctx, to); err != nil {
		return nil, err
	}
	switch from {
	case "":
		return []string{to}, nil
	case to:
		return nil, nil
	}
	if _, err := o.Commit(ctx, from); err != nil {
		return nil, err
	}
	out, err := o.program.run(ctx, nil, "rev-list", "--reverse", fmt.Sprintf("--max-count=%d", maxRange+1), to, "^"+from, "--")
	if err != nil {
		return nil, err
	}
	commits := strings.Fields(string(out))
	switch {
	case len(commits) > maxRange:
		return nil, fmt.Errorf("more than %d commits since %s; push an earlier one first", maxRange, from)
	case len(commits) == 0:
		return []string{to}, nil
	}
	return commits, nil
}

// verify returns why a commit does not count as signed. A zero now is not asked about.
func (s Signers) verify(raw []byte, now time.Time) error {
	if len(raw) >= maxCommit {
		return fmt.Errorf("it is too large to be verified: %d bytes or more", maxCommit)
	}
	payload, signature, err := cutSignature(raw)
	if err != nil {
		return err
	}
	c, err := parseCommit(raw)
	if err != nil {
		return err
	}
	kind, _, _ := bytes.Cut(signature, []byte("\n"))
	switch strings.TrimSpace(string(kind)) {
	case "":
		return errors.New("it is not signed")
	case "-----BEGIN SSH SIGNATURE-----":
		return s.verifySSH(payload, signature, c.Committed, now)
	case "-----BEGIN PGP SIGNATURE-----":
		return s.verifyPGP(payload, signature, now)
	}
	return fmt.Errorf("it has a signature of an unknown kind (%.60q); SSH and OpenPGP are known", kind)
}

// cutSignature takes the signature out of a commit, as git does before it signs.
func cutSignature(raw []byte) (payload, signature []byte, err error) {
	const none, ours, other = 0, 1, 2
	in := none
	found := false
	rest := raw
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		whole := rest[:min(len(line)+1, len(rest))]
		switch {
		case len(line) == 0: // the message follows
			return append(payload, rest...), signature, nil
		case line[0] == ' ' && in == ours:
			signature = append(append(signature, line[1:]...), '\n')
		case line[0] == ' ' && in == other:
		case bytes.HasPrefix(line, []byte("gpgsig ")):
			if found {
				return nil, nil, errors.New("it has two signatures")
			}
			in, found = ours, true
			signature = append(append(signature, line[len("gpgsig "):]...), '\n')
		case bytes.HasPrefix(line, []byte("gpgsig")): // for objects with names of another kind
			in = other
		default:
			in = none
			payload = append(payload, whole...)
		}
		rest = after
	}
	return payload, signature, nil
}
