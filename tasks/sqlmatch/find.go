package sqlmatch

import (
	"regexp"
	"strings"
	"sync"
)

// fence encloses code in Markdown.
const fence = "```"

// queryStart matches the beginning of a query: SELECT, or WITH and the name of a common
// table expression, since "with" alone is also a word of prose.
const queryStart = "(?i)\\b(?:SELECT\\b|WITH\\s+(?:RECURSIVE\\s+)?[\"`\\[]?\\w+[\"`\\]]?\\s*(?:\\([^()]*\\)\\s*)?AS\\b)"

// A Finder finds queries in texts. The zero value is ready for use, by several goroutines
// at once.
type Finder struct {
	once  sync.Once
	start *regexp.Regexp
}

// begin returns where the first query of a text begins, or -1.
func (f *Finder) begin(text string) int {
	f.once.Do(func() { f.start = regexp.MustCompile(queryStart) })
	if at := f.start.FindStringIndex(text); at != nil {
		return at[0]
	}
	return -1
}

// Find returns the query in a text of a model that also has other words. It is the
// content of the first code fence, without the name of a language. Without a fence, it
// begins with the first SELECT, or WITH … AS, and ends before the first semicolon outside
// of quotes or before the first blank line. ok is false if the text has no such part.
func (f *Finder) Find(text string) (query string, ok bool) {
	if _, code, fenced := strings.Cut(text, fence); fenced {
		code, _, _ = strings.Cut(code, fence)
		return f.withoutLanguage(code), true
	}
	at := f.begin(text)
	if at < 0 {
		return "", false
	}
	query = text[at:]
	for n := 0; n < len(query); {
		rest := query[n:]
		if rest[0] == ';' || rest[0] == '\n' && blankLine(rest[1:]) {
			return strings.TrimSpace(query[:n]), true
		}
		if quoted(rest[0]) {
			n += token(rest)
		} else {
			n++
		}
	}
	return strings.TrimSpace(query), true
}

// blankLine reports whether the first line of a text has only white space. What follows
// the last newline is no line.
func blankLine(text string) bool {
	line, _, ended := strings.Cut(text, "\n")
	return ended && strings.TrimSpace(line) == ""
}

// withoutLanguage removes the name of a language from the beginning of a fence's content:
// the word directly after the fence, unless the query begins with it.
func (f *Finder) withoutLanguage(code string) string {
	n := 0
	for n < len(code) && wordByte(code[n]) {
		n++
	}
	if f.begin(code) >= n {
		code = code[n:]
	}
	return strings.TrimSpace(code)
}
