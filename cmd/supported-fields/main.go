// Command supported-fields writes docs/supported-fields.md from the table of kinds
// and fields in package api. scripts/generate runs it.
//
// The document also says how much of what real repositories declare is acted on.
// That is counted from the corpus, which is not part of this repository: the
// numbers are kept in docs/supported-share.json, so that the document is the same
// wherever it is generated. They are counted anew whenever the corpus is there
// ($HEADWAY_CORPUS, or ../shared/corpus beside the repository), and the test fails
// when they are not those of the table.
package main

//go:generate go run . -root ../..

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	documentFile = "docs/supported-fields.md"
	shareFile    = "docs/supported-share.json"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	if err := generate(*root, corpus(*root)); err != nil {
		fmt.Fprintln(os.Stderr, "supported-fields:", err)
		os.Exit(1)
	}
}

// corpus is the folder of real manifests.
func corpus(root string) string {
	if dir := os.Getenv("HEADWAY_CORPUS"); dir != "" {
		return dir
	}
	return filepath.Join(root, "../shared/corpus")
}

func generate(root, corpus string) error {
	usage, err := readUsage(corpus)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		text, err := json.MarshalIndent(shareOf(usage), "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, shareFile), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	text, err := document(root)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, documentFile), text, 0o644)
}

// document is the text of documentFile, made from the table and shareFile alone.
func document(root string) ([]byte, error) {
	data, err := os.ReadFile(filepath.Join(root, shareFile))
	if err != nil {
		return nil, err
	}
	var s share
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read %s: %w", shareFile, err)
	}
	var out bytes.Buffer
	write(&out, s)
	return out.Bytes(), nil
}
