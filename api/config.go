package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The configuration of a cluster stands in its source, in one file at the
// source's root. It is no object: it is not stored, and no other file may hold it.
const (
	ConfigFile = ".headway.yaml"
	ConfigKind = "Config"
)

// MaxConfigBytes bounds ConfigFile.
const MaxConfigBytes = 1 << 20

// Config is how a source wants to be followed. DecodeConfig makes one, with every
// default filled in; the zero value is not valid.
type Config struct {
	metav1.TypeMeta  `json:",inline"`
	Drift            Drift          `json:"drift"`
	DefaultNamespace string         `json:"defaultNamespace"`
	Ignore           []string       `json:"ignore,omitempty"` // patterns as in a .gitignore at the source's root
	DeletionLimit    DeletionLimit  `json:"deletionLimit"`
	AllowedSigners   AllowedSigners `json:"allowedSigners"`
	PollInterval     Duration       `json:"pollInterval"`
	AllowStored      []string       `json:"allowStored,omitempty"` // kinds that may be declared although nothing acts on them: Kind or Kind.group
	Paths            []PathConfig   `json:"paths,omitempty"`
	Sources          []SourceConfig `json:"sources,omitempty"`

	folder   string    // where the file stands, from the tree's root; "" for the root
	document *Document // nil: there is no file
}

// Drift is what happens when a declared field is changed in the cluster.
type Drift string

const (
	DriftHeal   Drift = "heal"   // the field is put back
	DriftReport Drift = "report" // the change stays and is told
)

// DeletionLimit is how much one commit may delete without a trailer that allows
// it.
type DeletionLimit struct {
	Objects int `json:"objects"` // at most so many
	Percent int `json:"percent"` // at most so many of a hundred declared objects
}

// fewDeletions may always go if Objects allows so many and Percent is not 0: a third
// of a source of five would be one.
const fewDeletions = 3

// Most is how many of the declared objects one commit may delete unasked.
func (l DeletionLimit) Most(declared int) int {
	if l.Percent <= 0 {
		return 0
	}
	return max(0, min(l.Objects, max(fewDeletions, declared*l.Percent/100)))
}

// String returns the limit for a person.
func (l DeletionLimit) String() string {
	if l.Objects == 1 {
		return fmt.Sprintf("1 object or %d %%", l.Percent)
	}
	return fmt.Sprintf("%d objects or %d %%", l.Objects, l.Percent)
}

// AllowedSigners names the files that say who may sign commits, from the
// repository's root. When both are empty, commits need no signature.
type AllowedSigners struct {
	SSH     string `json:"ssh,omitempty"`     // in git's allowed-signers format
	OpenPGP string `json:"openpgp,omitempty"` // an armored keyring
}

// PathConfig is what is different below one path. What it leaves out is as above.
type PathConfig struct {
	Path             string   `json:"path"` // folder or file, from the source's root; cleaned
	Drift            Drift    `json:"drift,omitempty"`
	DefaultNamespace string   `json:"defaultNamespace,omitempty"`
	Ignore           []string `json:"ignore,omitempty"` // patterns as in a .gitignore at Path
}

// SourceConfig is a further source that the cluster follows.
type SourceConfig struct {
	Name         string    `json:"name"`           // unique DNS label, not "main"
	Repository   string    `json:"repository"`     // https or ssh URL, user@host:path, or an absolute path on the servers
	Ref          string    `json:"ref"`            // full ref name
	Path         string    `json:"path,omitempty"` // folder, cleaned; "" for the root
	Namespaces   []string  `json:"namespaces"`     // that it may write to; "*" alone for all
	PollInterval *Duration `json:"pollInterval"`   // never nil in a decoded Config
}

// Spec is the entry as the Source object has it.
func (s SourceConfig) Spec() SourceSpec {
	out := SourceSpec{URL: s.Repository, Ref: s.Ref, Path: s.Path, Namespaces: slices.Clone(s.Namespaces)}
	if s.PollInterval != nil {
		out.Poll = *s.PollInterval
	}
	return out
}

// Duration is a length of time that is written like 10s or 5m.
type Duration struct{ time.Duration }

func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		d.Duration, err = time.ParseDuration(text)
	}
	if err != nil {
		return errors.New("must be a length of time such as 10s or 5m")
	}
	return nil
}

// DefaultConfig is what holds when there is no ConfigFile.
func DefaultConfig() Config {
	return Config{
		TypeMeta:         metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: ConfigKind},
		Drift:            DriftHeal,
		DefaultNamespace: "default",
		DeletionLimit:    DeletionLimit{Objects: 10, Percent: 30},
		PollInterval:     Duration{10 * time.Second},
	}
}

// DefaultRef is the ref that a source follows when it names none.
const DefaultRef = "refs/heads/main"

// DriftAt says what happens to the drift of a file, whose path is from the tree's
// root. Of the entries of Paths above it, the most specific one that says something
// decides.
func (c Config) DriftAt(file string) Drift {
	out := cmp.Or(c.Drift, DriftHeal)
	rel, ok := below(c.folder, file)
	if !ok {
		return out
	}
	length := -1
	for _, p := range c.Paths {
		if _, inside := below(p.Path, rel); inside && p.Drift != "" && len(p.Path) > length {
			out, length = p.Drift, len(p.Path)
		}
	}
	return out
}

// Says tells whether the file has a field of this name at its top, so that it is
// not the default that stands there.
func (c Config) Says(field string) bool {
	if c.document == nil {
		return false
	}
	m, _ := c.document.Value.(map[string]any)
	_, ok := m[field]
	return ok
}

// Problem says that something is wrong with a field of the file that the
// configuration was read from, such as a path that leads nowhere.
func (c Config) Problem(field, reason string) Problem {
	p := Problem{Path: path.Join(c.folder, ConfigFile), Field: field, Reason: reason}
	if c.document == nil {
		return p
	}
	at, _ := c.document.Place(field)
	return p.At(at)
}

// Missing says which files that the configuration names are not in the tree; has
// answers for a path from the tree's root. Signatures without the file of those
// who may sign are refused, so it must not go unsaid.
func (c Config) Missing(has func(file string) bool) []Problem {
	var out []Problem
	for _, f := range []struct{ field, file string }{{"allowedSigners.ssh", c.AllowedSigners.SSH}, {"allowedSigners.openpgp", c.AllowedSigners.OpenPGP}} {
		if f.file != "" && !has(f.file) {
			out = append(out, c.Problem(f.field, "no such file in the repository: the path is from its root"))
		}
	}
	return out
}

// below gives the path from folder, which may be "", to file; "" for folder
// itself.
func below(folder, file string) (rel string, ok bool) {
	if folder == "" {
		return file, true
	}
	rest, ok := strings.CutPrefix(file, folder)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// MisplacedConfig says what is wrong with a file that is meant as a configuration
// and is not read as one: a ConfigFile below or above the root of the source,
// which is the folder root of the tree, or another spelling of its name.
func MisplacedConfig(root, file string) (Problem, bool) {
	root = strings.Trim(root, "/")
	here := path.Join(root, ConfigFile)
	dir, name := path.Split(file)
	dir = strings.TrimSuffix(dir, "/")
	rel, inside := below(root, dir)
	_, above := below(dir, root)
	switch {
	case file == here:
	case name == ConfigFile && inside:
		return Problem{Path: file, Reason: fmt.Sprintf("only the configuration at the source's root is read: write this in %s, below paths, with path: %s", here, rel)}, true
	case name == ConfigFile && above:
		return Problem{Path: file, Reason: fmt.Sprintf("the root of the source is %s: move the configuration to %s", root, here)}, true
	case dir == root && slices.Contains([]string{".headway.yml", ".headway.json", "headway.yaml", "headway.yml"}, name):
		return Problem{Path: file, Reason: "the configuration is read from " + here + ": rename the file"}, true
	}
	return Problem{}, false
}
