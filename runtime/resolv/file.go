package resolv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Path is where every machine has it.
const Path = "/etc/resolv.conf"

// stub is the server of systemd-resolved on a machine's loopback; behind is the
// file that names those it asks.
const (
	stub   = "127.0.0.53"
	behind = "/run/systemd/resolve/resolv.conf"
)

// longest a file may be.
const longest = 1 << 20

// File is what a resolv.conf says.
type File struct {
	Nameservers, Searches, Options []string
}

// Read reads a resolv.conf. One that is not there says nothing.
func Read(path string) (File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil
	}
	if err != nil {
		return File{}, fmt.Errorf("read the node's resolvers: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err != nil {
		return File{}, fmt.Errorf("read the node's resolvers: %w", err)
	}
	if len(text) > longest {
		return File{}, fmt.Errorf("read the node's resolvers: %s is longer than %d bytes", path, longest)
	}
	return parse(string(text)), nil
}

// Node reads what pods can use of the node's file: never the stub on the node's
// loopback, which a pod cannot reach, but what the stub itself asks.
func Node() (File, error) {
	file, err := Read(Path)
	if err != nil || !slices.Contains(file.Nameservers, stub) {
		return file, err
	}
	real, err := Read(behind)
	if err != nil || len(real.Nameservers) == 0 {
		return file, err
	}
	return real, nil
}

// parse reads lines as libc does: nameservers add up, the last search counts,
// "domain" is a search of one, an option counts as it is given last.
func parse(text string) File {
	var f File
	for line := range strings.Lines(text) {
		if at := strings.IndexAny(line, "#;"); at >= 0 {
			line = line[:at]
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch rest := fields[1:]; fields[0] {
		case "nameserver":
			f.Nameservers = append(f.Nameservers, rest[0])
		case "domain":
			f.Searches = searches(rest[:1])
		case "search":
			f.Searches = searches(rest)
		case "options":
			for _, option := range rest {
				f.Options = withOption(f.Options, option)
			}
		}
	}
	return f
}

// searches leaves out the root and the dots at the ends, so that a domain counts
// once however it is written.
func searches(list []string) []string {
	var out []string
	for _, s := range list {
		if s = strings.TrimRight(s, "."); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// withOption adds an option, in the place of one of its name if there is one.
func withOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	at := slices.IndexFunc(options, func(o string) bool {
		other, _, _ := strings.Cut(o, ":")
		return other == name
	})
	if at < 0 {
		return append(options, option)
	}
	out := slices.Clone(options)
	out[at] = option
	return out
}

// String is the file as libc reads it.
func (f File) String() string {
	var b strings.Builder
	for _, n := range f.Nameservers {
		fmt.Fprintf(&b, "nameserver %s\n", n)
	}
	if len(f.Searches) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(f.Searches, " "))
	}
	if len(f.Options) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(f.Options, " "))
	}
	return b.String()
}
