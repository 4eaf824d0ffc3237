package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// report is what is read of one of ginkgo's JSON reports.
type report struct {
	SpecReports []spec
}

type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	Failure                 struct{ Message string }
}

func (s spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// result of a spec. One that a filter left out has none.
func (s spec) result() (result, why string) {
	switch s.State {
	case "passed":
		return "passed", ""
	case "skipped", "pending":
		if s.Failure.Message == "" {
			return "", ""
		}
		return "not run", s.Failure.Message
	}
	return "failed", s.State + ": " + s.Failure.Message
}

// table prints how many specs of each group passed, and of every other one what became
// of it. Of a spec that is in several reports the last one counts.
func table(w io.Writer, paths []string) error {
	specs := map[string]spec{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var reports []report
		if err := json.Unmarshal(data, &reports); err != nil {
			return fmt.Errorf("%s is no JSON report of ginkgo: %w", path, err)
		}
		for _, r := range reports {
			for _, s := range r.SpecReports {
				if result, _ := s.result(); s.LeafNodeType == "It" && result != "" {
					specs[s.name()] = s
				}
			}
		}
	}
	if len(specs) == 0 {
		return errors.New("no spec has run: does FOCUS match one?")
	}
	counts := map[string]map[string]int{}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		result, why := specs[name].result()
		group := groupOf(name)
		if counts[group] == nil {
			counts[group] = map[string]int{}
		}
		counts[group][result]++
		if result != "passed" {
			others = append(others, fmt.Sprintf("| %s | %s | %s |", cell(name, 300), result, cell(why, 300)))
		}
	}
	if _, err := fmt.Fprintln(w, "| group | passed | failed | not run |\n|---|---|---|---|"); err != nil {
		return err
	}
	for _, group := range slices.Sorted(maps.Keys(counts)) {
		c := counts[group]
		if _, err := fmt.Fprintf(w, "| %s | %d | %d | %d |\n", group, c["passed"], c["failed"], c["not run"]); err != nil {
			return err
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n| spec | result | why |\n|---|---|---|\n%s\n", strings.Join(others, "\n"))
	return err
}

// groupOf is the group of Kubernetes whose spec it is: its name begins with it.
func groupOf(name string) string {
	group := regexp.MustCompile(`^\[(sig-[a-z-]+)\]`).FindStringSubmatch(name)
	if group == nil {
		return "others"
	}
	return group[1]
}

// cell is a text of any length and shape as one cell of a table.
func cell(text string, most int) string {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return text
}
