// Package golden compares what a person sees, such as the output of a command or the text of a
// page, with a file that holds it as a whole. The words of a view are therefore in one place:
// whoever changes them runs the test with -update, which writes the file anew, and reads the
// difference.
//
// A golden file proves that words are as somebody has read them, not that they are right. Numbers,
// addresses and decisions are therefore asserted by the tests themselves, too.
//
// What differs from one run to the next, such as times, durations, ports and temporary directories,
// is replaced by words in capitals. Steady does that and is the only place that knows how.
//
// The package is for tests. It defines their flag -update.
package golden

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that tests compare with anew")

// Updating reports whether the tests write the files that they compare with, rather than compare.
func Updating() bool { return *update }

// Compare fails the test unless text, made steady, is what testdata/golden/NAME.txt holds. With
// -update it writes the file.
func Compare(t testing.TB, name, text string) {
	t.Helper()
	File(t, filepath.Join("testdata", "golden", name+".txt"), Steady(text))
}

// Table does what Compare does with one line for each name: the name, a tab, and its message, such
// as that of an error. Further lines of a message are indented by a tab.
func Table(t testing.TB, name string, messages map[string]string) {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(messages)) {
		b.WriteString(key + "\t" + strings.ReplaceAll(strings.TrimRight(messages[key], "\n"), "\n", "\n\t") + "\n")
	}
	Compare(t, name, b.String())
}

// File does what Compare does with a file of any path, and with the text as it is.
func File(t testing.TB, path, text string) {
	t.Helper()
	if Updating() {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; -update writes it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("%s differs; if that is intended, run the test with -update (- the file, + now):\n%s", path, diff)
	}
}

// unsteady are the parts of a text that differ from one run to the next, and what takes their
// place. Earlier ones take precedence.
var unsteady = []struct {
	part *regexp.Regexp
	word string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?([+−-]\d\d:?\d\d|Z|UTC))?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?`), "TIME"},
	{regexp.MustCompile(`TIME( TIME)+`), "TIME"}, // the ticks of an axis
	{regexp.MustCompile(`(?:under )?\b\d+(?:\.\d+)? (?:µs|ms|s|min|h)\b(?: \d+ (?:ms|s|min)\b)?`), "DURATION"},
	{regexp.MustCompile(`(?m)^(sandbox {6})(process: .*; agent\.sandbox: none turns it off|none: (?:this machine can't|agent\.directory, \S+, lies|its program, \S+, lies) .*)$`), "${1}ISOLATION"},
	{regexp.MustCompile(`(?m)^(Agents|  its agents) are (isolated: .*|not isolated: (?:this machine can't|agent\.directory, \S+, lies|its program, \S+, lies) .*)$`), "$1 are ISOLATION"},
	{regexp.MustCompile(`sha256:[0-9a-f]{64}\b`), "sha256:DIGEST"},
	{regexp.MustCompile(`\b(native/\d+) \S+ \S+ go\d[\w.]*`), "$1 PROCESSOR"},
	{regexp.MustCompile(`(127\.0\.0\.1|localhost):\d{4,5}\b`), "$1:PORT"},
}

// Steady replaces the parts of a text that differ from one run to the next by words in capitals,
// and ends the text with one line feed. A directory, such as a temporary one of the test, becomes
// DIR; give the longer of two that are inside each other first.
func Steady(text string, directories ...string) string {
	for _, directory := range directories {
		text = strings.ReplaceAll(text, directory, "DIR")
	}
	for _, u := range unsteady {
		text = u.part.ReplaceAllString(text, u.word)
	}
	return strings.TrimRight(text, "\n") + "\n"
}
