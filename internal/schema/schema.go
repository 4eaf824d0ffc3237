package schema

import (
	_ "embed" // schema.yaml
	"fmt"
	"strings"
	"sync"

	"headway.dev/headway/api"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// schemaText says, for every kind that a repository may declare, which lists are
// merged by which keys and which are one value. It is client-go's schema cut down
// to those kinds and without their status; TestSchemaIsClientGos holds it to that.
// The whole one costs five times the memory.
//
//go:embed schema.yaml
var schemaText string

var parser = sync.OnceValue(func() *typed.Parser {
	p, err := typed.NewParser(typed.YAMLObject(schemaText))
	if err != nil {
		panic("schema.yaml: " + err.Error())
	}
	return p
})

// TypeOf returns the type of a kind in the schema.
func TypeOf(k api.Kind) (typed.ParseableType, error) {
	t := parser().Type(nameOf(k))
	if !t.IsValid() {
		return t, fmt.Errorf("kind %s is not in the schema", k.Kind)
	}
	return t, nil
}

// nameOf is what the schema calls a kind.
func nameOf(k api.Kind) string {
	group, _, _ := strings.Cut(k.Group, ".")
	switch group {
	case "":
		group = "core"
	case "apiextensions":
		return "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions." + k.Version + "." + k.Kind
	}
	return "io.k8s.api." + group + "." + k.Version + "." + k.Kind
}
