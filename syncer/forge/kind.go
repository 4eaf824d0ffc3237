package forge

import (
	"fmt"
	"strings"
)

// Kind is which software a forge runs. The zero Kind is one that nobody has said
// and that the host's name does not tell.
type Kind string

const (
	GitHub Kind = "github" // github.com, *.ghe.com and GitHub Enterprise Server
	GitLab Kind = "gitlab" // gitlab.com and self-managed
	Gitea  Kind = "gitea"  // Gitea and Forgejo, which kept its API
)

// ParseKind reads what a person calls a forge. An empty word is the zero Kind.
func ParseKind(word string) (Kind, error) {
	switch k := Kind(strings.ToLower(word)); k {
	case "", GitHub, GitLab, Gitea:
		return k, nil
	case "forgejo":
		return Gitea, nil
	}
	return "", fmt.Errorf("no such forge as %.40q: github, gitlab, gitea or forgejo", word)
}

// kindOf tells the forge of a host that everybody knows.
func kindOf(host string) Kind {
	switch {
	case host == "github.com", strings.HasSuffix(host, ".ghe.com"):
		return GitHub
	case host == "gitlab.com":
		return GitLab
	case host == "codeberg.org", host == "gitea.com":
		return Gitea
	}
	return ""
}

// name is what a person calls the forge.
func (k Kind) name() string {
	switch k {
	case GitHub:
		return "GitHub"
	case GitLab:
		return "GitLab"
	case Gitea:
		return "Gitea"
	}
	return "the forge"
}

// SkipCI is what the message of a commit ends with so that the forge's own CI does
// not run for it. GitHub Actions honours [skip ci], [ci skip], [no ci], [skip
// actions] and [actions skip] anywhere in the message of the pushed head; GitLab CI
// [skip ci] and [ci skip]; Gitea and Forgejo Actions the same five as GitHub,
// unless SKIP_WORKFLOW_STRINGS of the instance says otherwise. Woodpecker and Drone
// honour [skip ci] too. So it is the one that all of them know.
const SkipCI = "[skip ci]"
