package containerd

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"headway.dev/headway/runtime/agent"
)

// scrubbedError is an error whose text has no secret, with its chain kept for errors.Is.
type scrubbedError struct {
	text string
	err  error
}

func (s *scrubbedError) Error() string { return s.text }
func (s *scrubbedError) Unwrap() error { return s.err }

// scrubbed takes out of an error what may be the value of a Secret (R14): the engine
// names programs and paths as they are after $(VAR) is expanded. They are shown as they
// stand in the manifest.
func scrubbed(err error, spec agent.ContainerSpec) error {
	text := err.Error()
	clean := scrub(text, spec)
	if clean == text {
		return err
	}
	return &scrubbedError{clean, err}
}

// shortestSecret is the length, in bytes, from which on a value is looked for by itself:
// less would be found in any sentence.
const shortestSecret = 3

func scrub(text string, spec agent.ContainerSpec) string {
	type change struct{ from, to string }
	var changes []change
	add := func(from, to string) {
		if from == to || from == "" {
			return
		}
		changes = append(changes, change{from, to})
		if quoted := strconv.Quote(from); quoted[1:len(quoted)-1] != from {
			changes = append(changes, change{quoted[1 : len(quoted)-1], to})
		}
	}
	for i, written := range spec.Container.Command {
		if i < len(spec.Command) {
			add(spec.Command[i], written)
		}
	}
	for i, written := range spec.Container.Args {
		if i < len(spec.Args) {
			add(spec.Args[i], written)
		}
	}
	for _, m := range spec.Container.VolumeMounts {
		for _, at := range spec.Mounts {
			if m.SubPathExpr != "" && at.Destination == m.MountPath {
				add(at.Source, m.SubPathExpr)
			}
		}
	}
	for name, value := range secretEnv(spec) {
		if len(value) >= shortestSecret {
			add(value, "$("+name+")")
		}
	}
	// The longest first: a part of one may be another.
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(len(b.from), len(a.from)), strings.Compare(a.from, b.from), strings.Compare(a.to, b.to))
	})
	var pairs []string
	for _, c := range changes {
		pairs = append(pairs, c.from, c.to)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// secretEnv are the variables whose values are, or may hold, those of Secrets.
func secretEnv(spec agent.ContainerSpec) map[string]string {
	values := map[string]string{}
	for _, e := range spec.Env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	out := map[string]string{}
	plain := map[string]bool{}
	for _, e := range spec.Container.Env {
		plain[e.Name] = true
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil || e.ValueFrom == nil && values[e.Name] != e.Value {
			out[e.Name] = values[e.Name]
		}
	}
	for _, from := range spec.Container.EnvFrom {
		if from.SecretRef == nil {
			continue
		}
		for name, value := range values { // which of them came from it is not known
			if strings.HasPrefix(name, from.Prefix) && !plain[name] {
				out[name] = value
			}
		}
	}
	return out
}
