package prompts

import (
	"regexp"
	"slices"
	"strings"
)

const (
	referenceOpen  = "{{prompt:"
	referenceClose = "}}"
)

var (
	placeholderName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reference       = regexp.MustCompile(`\{\{prompt:([^{}\n]{0,200})\}\}`)
)

// Placeholders lists the placeholders {NAME} in a text, each once and in order. Braces that
// are doubled are text, as in Python's str.format.
func Placeholders(text string) []string {
	var found []string
	for rest := text; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			break
		}
		brace := rest[at]
		rest = rest[at+1:]
		if rest != "" && rest[0] == brace {
			rest = rest[1:]
			continue
		}
		n, after, closed := strings.Cut(rest, "}")
		if brace == '}' || !closed || !placeholderName.MatchString(n) {
			continue
		}
		rest = after
		if !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	return found
}

// Reference is a place in a text that names a prompt, as {{prompt:NAME}}.
type Reference struct {
	Name string // as it is written, so that there may be no such prompt
	// Start and End are the bytes of the reference in the text, braces included.
	Start, End int
}

// References lists the references in a text in order.
func References(text string) []Reference {
	if !strings.Contains(text, referenceOpen) {
		return nil
	}
	var found []Reference
	for _, at := range reference.FindAllStringSubmatchIndex(text, -1) {
		found = append(found, Reference{text[at[2]:at[3]], at[0], at[1]})
	}
	return found
}
