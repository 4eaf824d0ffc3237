package main

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// embedded holds the keeper's binary and the demo images, if make build put them
// there.
//
//go:embed embedded
var embedded embed.FS

const (
	embeddedKeeper = "embedded/headway-keeper"
	embeddedImages = "embedded/hello.tar"
)

// keeperProgram returns the path of the keeper: unpacked from this program, or
// beside it. Each build has a name of its own, so that a keeper that runs is
// never written over.
func keeperProgram(dir dataDir) (string, error) {
	data, err := embedded.ReadFile(embeddedKeeper)
	if errors.Is(err, fs.ErrNotExist) {
		return keeperBeside()
	}
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir.programs(), "headway-keeper-"+hex.EncodeToString(sum[:6]))
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, data) {
		return path, nil
	}
	if err := replaceFile(path, data, 0o755); err != nil {
		return "", fmt.Errorf("unpack the keeper: %w", err)
	}
	return path, nil
}

func keeperBeside() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(self), "headway-keeper")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("this headway was built without its keeper, and %s is not there: build with make build", path)
	}
	return path, nil
}
