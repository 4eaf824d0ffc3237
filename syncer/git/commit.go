package git

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxCommit bounds one commit object. A longer message is cut off, and then has
// no trailers: what looks like the last paragraph is not.
const maxCommit = 1 << 20

// Commit is what we need to know of a commit.
type Commit struct {
	Hash      string
	Tree      string
	Parents   []string
	Author    string // "Name <mail>"
	Authored  time.Time
	Committed time.Time
	Subject   string // first line of the message
	Trailers  []Trailer
}

// Commit reads a commit by its hash.
func (o *Objects) Commit(ctx context.Context, hash string) (Commit, error) {
	if !isHash(hash) {
		return Commit{}, fmt.Errorf("commit %.60q: not a full commit hash", hash)
	}
	var c Commit
	err := o.rawCommits(ctx, []string{hash}, func(_ int, raw []byte) (err error) {
		if c, err = parseCommit(raw); err != nil {
			return fmt.Errorf("commit %s: %w", hash, err)
		}
		c.Hash = hash
		return nil
	})
	return c, err
}

// parseCommit reads a commit object.
func parseCommit(raw []byte) (Commit, error) {
	var c Commit
	head, message, _ := strings.Cut(string(raw), "\n\n")
	for line := range strings.SplitSeq(head, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			c.Tree = value
		case "parent":
			if !isHash(value) {
				return Commit{}, fmt.Errorf("parent %.60q is not a hash", value)
			}
			c.Parents = append(c.Parents, value)
		case "author":
			c.Author, c.Authored = parseSignature(value)
		case "committer":
			_, c.Committed = parseSignature(value)
		}
	}
	if !isHash(c.Tree) {
		return Commit{}, fmt.Errorf("tree %.60q is not a hash", c.Tree)
	}
	subject, _, _ := strings.Cut(strings.TrimLeft(message, "\n"), "\n")
	c.Subject = oneLine(subject)
	if len(raw) < maxCommit {
		c.Trailers = ParseTrailers(message)
	}
	return c, nil
}

// parseSignature reads "Name <mail> 1700000000 +0100". A time that cannot be
// read is the zero time: a commit made by an odd tool is still a commit.
func parseSignature(s string) (who string, when time.Time) {
	end := strings.LastIndexByte(s, '>')
	if end < 0 {
		return oneLine(s), time.Time{}
	}
	who = oneLine(s[:end+1])
	f := strings.Fields(s[end+1:])
	if len(f) == 0 {
		return who, time.Time{}
	}
	sec, err := strconv.ParseInt(f[0], 10, 64)
	if err != nil || sec < 0 || sec > 1<<40 {
		return who, time.Time{}
	}
	zone := time.UTC
	if len(f) > 1 {
		if off, err := strconv.Atoi(f[1]); err == nil && off > -2400 && off < 2400 {
			zone = time.FixedZone("", (off/100*60+off%100)*60)
		}
	}
	return who, time.Unix(sec, 0).In(zone)
}

// oneLine makes text from a commit fit for one line of a log or an annotation.
func oneLine(s string) string {
	s = strings.TrimSpace(printable(strings.ReplaceAll(s, "\n", " ")))
	if len(s) > 1000 {
		s = strings.ToValidUTF8(s[:1000], "") + "…"
	}
	return s
}
