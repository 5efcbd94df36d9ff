package page_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// behindNumber finds an action of a template that a word follows, perhaps after two others and some
// tags, that may be a plural.
var behindNumber = regexp.MustCompile(`(\{\{[^{}]*\}\})(?:</?\w+[^>]*>|\s)*((?:[a-z]+ ){0,2}[a-z]*[a-z]s)\b`)

// noNumber finds actions that write no number, or that write its noun, too.
var noNumber = regexp.MustCompile(`^\{\{(?:end|else|if|with|range|template|define|fixed|optional|line|clean|counted|change|signed|took|moment|are|command)\b`)

// noPlural finds words that are no names of counted things, and what is a share of a whole.
var noPlural = regexp.MustCompile(`\b(?:is|was|has|prints|trains|starts|nats)$|^of the `)

// fixedPlurals returns the places of a template where a number is followed by a noun that is in
// the plural whatever the number is, or by two forms of it that the template chooses from.
func fixedPlurals(template string) []string {
	var out []string
	for _, m := range behindNumber.FindAllStringSubmatch(template, -1) {
		if !noNumber.MatchString(m[1]) && !noPlural.MatchString(m[2]) {
			out = append(out, m[0])
		}
	}
	return append(out, regexp.MustCompile(`\{\{if eq (?:\S+ 1|1 [^{}]*)\}\}[^{}]*\{\{else\}\}[^{}]*\{\{end\}\}`).FindAllString(template, -1)...)
}

func TestNoTemplateHasAFixedPluralBehindANumber(t *testing.T) {
	t.Parallel()
	for bad, want := range map[string]int{
		`{{count .Steps}} steps`: 1, `{{.Left}} <span class="of">more attempts</span>`: 1, `{{len .Tools}} {{if eq 1 (len .Tools)}}tool{{else}}tools{{end}}`: 1,
		`{{if eq . 1}}message is{{else}}messages are{{end}}`: 1, `{{counted .Steps "step"}} finished`: 0, `{{.Version}} is promoted`: 0, `{{fixed .Lag}} steps`: 0,
	} {
		require.Len(t, fixedPlurals(bad), want, bad)
	}
	read := 0
	require.NoError(t, fs.WalkDir(os.DirFS("."), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".html") {
			return err
		}
		read++
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Empty(t, fixedPlurals(string(text)), "%s: write the number with its noun, as {{counted .Steps \"step\"}} does", path)
		return nil
	}))
	require.Greater(t, read, 20)
}
