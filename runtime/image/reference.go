package image

import (
	"fmt"
	"strings"

	"github.com/distribution/reference"
)

// Local is the registry name of images that exist on the node only.
const Local = "headway.local"

// Canonical completes an image's name as Kubernetes understands it: nginx is
// docker.io/library/nginx:latest.
func Canonical(name string) (string, error) {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return "", &Error{Reason: InvalidImageName, Err: fmt.Errorf("image name %q: %w", name, err)}
	}
	return named.String(), nil
}

// Repository is the name without tag and digest.
func Repository(canonical string) string {
	if named, err := reference.ParseNamed(canonical); err == nil {
		return named.Name()
	}
	return canonical
}

func isLocal(canonical string) bool { return strings.HasPrefix(canonical, Local+"/") }

// fromArchive names an image of an archive. An OCI archive may say only a tag:
// the archive's own name then says the rest.
func fromArchive(name, archive string) (string, error) {
	if !strings.ContainsAny(name, "/:@") {
		name = strings.ToLower(archive) + ":" + name
	}
	return Canonical(name)
}
