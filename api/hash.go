package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// ManifestHash is a hash of a declared document that does not depend on the
// order of its keys, on comments or on layout.
func ManifestHash(declared map[string]any) string {
	data, err := json.Marshal(declared) // sorts keys
	if err != nil {
		panic("api: declared document holds what JSON cannot: " + err.Error())
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func sorted(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
