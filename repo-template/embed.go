// Package template holds the repository that a team starts from. headway init
// writes it out; it is also the first fixture of the end-to-end tests.
package template

import "embed"

// Files is the repository's content, this Go file left out.
//
//go:embed README.md namespace.yaml web jobs
var Files embed.FS
