package api_test

import (
	"regexp"
	"strings"
	"testing"

	"headway.dev/headway/api"
)

// TestConfigIsDocumented: each field has one row in docs/configuration.md, which
// says its default and has an example, and no row is about a field that is gone.
// What the page shows as a file is a valid one.
func TestConfigIsDocumented(t *testing.T) {
	page := string(read(t, "../docs/configuration.md"))
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$").FindAllStringSubmatch(page, -1) {
		if rows[row[1]] {
			t.Errorf("%s has two rows", row[1])
		}
		rows[row[1]] = true
		cells := strings.Split(row[2], "|")
		if len(cells) != 3 || strings.TrimSpace(cells[0]) == "" || !strings.Contains(cells[1], "`") || strings.TrimSpace(cells[2]) == "" && row[1] != "kind" {
			t.Errorf("%s: the row needs a default, an example and what it does: %q", row[1], cells)
		}
	}
	for _, f := range api.ConfigFields() {
		if f.Leaf && !rows[f.Path] {
			t.Errorf("%s is not documented", f.Path)
		}
		delete(rows, f.Path)
	}
	for field := range rows {
		t.Errorf("%s is documented and does not exist", field)
	}
	files := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(files) < 2 {
		t.Errorf("%d examples", len(files))
	}
	shown := ""
	for _, file := range files {
		if _, problems := api.DecodeConfig(".headway.yaml", []byte(file[1])); len(problems) > 0 {
			t.Errorf("an example is not valid: %v", problems)
		}
		shown += file[1]
	}
	for _, f := range api.ConfigFields() {
		name := strings.TrimSuffix(f.Path[strings.LastIndex(f.Path, ".")+1:], "[]")
		if f.Leaf && !regexp.MustCompile(`(?m)^[- ]*`+regexp.QuoteMeta(name)+":").MatchString(shown) {
			t.Errorf("%s is in no example", f.Path)
		}
	}
	defaults := api.DefaultConfig()
	for field, value := range map[string]string{
		"drift": string(defaults.Drift), "defaultNamespace": defaults.DefaultNamespace, "pollInterval": defaults.PollInterval.String(), "sources[].ref": api.DefaultRef,
		"deletionLimit.objects": string(encode(t, defaults.DeletionLimit.Objects)), "deletionLimit.percent": string(encode(t, defaults.DeletionLimit.Percent)),
	} {
		if row := "| `" + field + "` | `" + value + "` |"; !strings.Contains(page, row) {
			t.Errorf("the page does not say %s", row)
		}
	}
}
