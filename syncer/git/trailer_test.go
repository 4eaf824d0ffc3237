package git

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseTrailers(t *testing.T) {
	for message, want := range map[string][]Trailer{
		"subject\n":                                      nil,
		"Allow-Delete: x\n":                              nil, // the first paragraph is the title
		"s\n\nAllow-Delete: deployment/web\n":            {{"Allow-Delete", "deployment/web"}},
		"s\n\nbody\n\nA: 1\nB : 2\n":                     {{"A", "1"}, {"B", "2"}},
		"s\n\nA: one\n  two\n\tthree\n":                  {{"A", "one two three"}},
		"s\n\nA: 1\n\nbody\n":                            nil,
		"s\n\nA: 1\nbody of no trailer\n":                nil,
		"s\n\ntext\nSigned-off-by: Ann <a@b>\nA: 1\n":    {{"Signed-off-by", "Ann <a@b>"}, {"A", "1"}},
		"s\n\n(cherry picked from commit abc)\nA: 1\n":   {{"A", "1"}},
		"s\n\nA: 1\n\n\n":                                {{"A", "1"}},
		"s\n\nA: 1\n\n# a comment\nConflicts:\n\tfile\n": {{"A", "1"}},
		"s\n\nA:\n":           {{"A", ""}},
		"s\n\n: 1\n":          nil,
		"s\n\nhttp://x.y/z\n": {{"http", "//x.y/z"}},
	} {
		if got := ParseTrailers(message); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

// Git itself reads the same trailers out of any message.
func TestParseTrailersAsGitDoes(t *testing.T) {
	line := rapid.OneOf(
		rapid.SampledFrom([]string{"", "", " ", "# c", "A: 1", "Allow-Delete: a/b", "B-2 :  x ", " folded", "\tfolded", "text", "text: no trailer",
			"Signed-off-by: Ann <a@b>", "Signed-off-by:", "(cherry picked from commit 1234)", "Conflicts:", "---", ":", "-: 1", "a b: c", "a  : c",
			"\r", "A: 1\r", "Ä: 1", "# ------------------------ >8 ------------------------", "A:1:2", "Reviewed by: x", "A :", "1: 2"}),
		rapid.StringMatching(`[ A-c:#\-\t(]{0,6}`),
	)
	w := newWork(t)
	const n = 2000
	messages := make([]string, n)
	gen := rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(line, 0, 12).Draw(t, "lines")
		message := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "ends") {
			message += "\n"
		}
		if rapid.IntRange(0, 9).Draw(t, "title") > 0 {
			message = "title\n\n" + message
		}
		return message
	})
	var in strings.Builder
	for i := range messages {
		messages[i] = gen.Example(i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter Bob <bob@example.org> %d +0000\ndata %d\n%s\n", 1700000000+i, len(messages[i]), messages[i])
	}
	w.fastImport(in.String())
	out := w.git("log", "--reverse", "--format=%x00%(trailers:only,unfold,key_value_separator=%x02,separator=%x01)", "main")
	answers := strings.Split(out, "\x00")[1:]
	if len(answers) != n {
		t.Fatalf("%d answers", len(answers))
	}
	some := 0
	for i, message := range messages {
		var want []Trailer
		for one := range strings.SplitSeq(strings.TrimSuffix(answers[i], "\n"), "\x01") {
			if key, val, ok := strings.Cut(one, "\x02"); ok {
				want = append(want, Trailer{key, val})
			}
		}
		if len(want) > 0 {
			some++
		}
		if got := ParseTrailers(message); !slices.Equal(got, want) {
			t.Errorf("%q:\n got %q\ngit: %q", message, got, want)
		}
	}
	if some < n/20 {
		t.Errorf("only %d of %d messages have trailers", some, n)
	}
}

func FuzzTrailers(f *testing.F) {
	f.Add("s\n\nAllow-Delete: deployment/web\n  and more\n")
	f.Add("s\n\nSigned-off-by: x\nbody\n\n# c\nConflicts:\n\ta\n")
	f.Add("\n\n\n:\n \n")
	f.Fuzz(func(t *testing.T, message string) {
		for _, tr := range ParseTrailers(message) {
			if tr.Key == "" || strings.Contains(tr.Value, "\n") || strings.TrimSpace(tr.Key) != tr.Key {
				t.Errorf("%q", tr)
			}
			// What we write is what we read.
			if val := oneLine(tr.Value); val != "" && !strings.ContainsAny(tr.Key, " \t") {
				text, err := withTrailers("subject", []Trailer{tr})
				if err != nil {
					t.Fatal(err)
				}
				if got := ParseTrailers(text); len(got) != 1 || got[0].Key != tr.Key || got[0].Value != val {
					t.Errorf("%q came back as %q", tr, got)
				}
			}
		}
	})
}
