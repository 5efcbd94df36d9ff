package sqlmatch

import (
	"regexp"
	"strings"
	"sync"
)

// patterns belong to the rules of the official evaluation. The zero value is ready.
type patterns struct {
	once            sync.Once
	order, thisYear *regexp.Regexp
}

func (p *patterns) compile() {
	p.once.Do(func() {
		p.order = regexp.MustCompile(`(?i)order\s+by`)
		p.thisYear = regexp.MustCompile(`(?i)YEAR\s*\(\s*CURDATE\s*\(\s*\)\s*\)\s*`)
	})
}

// prepare is the query as the official evaluation executes it: comparisons that were
// cut in two are joined, MySQL's word for this year is 2020, and DISTINCT is left out.
func (p *patterns) prepare(query string, keepDistinct bool) string {
	p.compile()
	query = strings.NewReplacer("> =", ">=", "< =", "<=", "! =", "!=").Replace(query)
	if !keepDistinct {
		query = withoutDistinct(query)
	}
	return p.thisYear.ReplaceAllString(query, "2020")
}

// ordered reports whether the order of a gold query's rows matters.
func (p *patterns) ordered(gold string) bool {
	p.compile()
	return p.order.MatchString(gold)
}

// withoutDistinct leaves the word out where it stands in neither quotes nor comments.
func withoutDistinct(query string) string {
	var b strings.Builder
	for query != "" {
		n := token(query)
		if !strings.EqualFold(query[:n], "distinct") {
			b.WriteString(query[:n])
		}
		query = query[n:]
	}
	return b.String()
}

// onlyBlank reports whether text has nothing to execute: blanks, semicolons and
// comments.
func onlyBlank(text string) bool {
	for text != "" {
		n := token(text)
		comment := strings.HasPrefix(text, "--") || strings.HasPrefix(text, "/*")
		if !comment && strings.Trim(text[:n], " \t\r\n\f;") != "" {
			return false
		}
		text = text[n:]
	}
	return true
}

// token is the length of the first token of a query: a word, something in quotes, a
// comment, or one byte.
func token(query string) int {
	switch c := query[0]; {
	case c == '\'' || c == '"' || c == '`':
		return closed(query, 1, string(c))
	case c == '[':
		return closed(query, 1, "]")
	case strings.HasPrefix(query, "--"):
		return closed(query, 2, "\n")
	case strings.HasPrefix(query, "/*"):
		return closed(query, 2, "*/")
	}
	n := 0
	for n < len(query) && wordByte(query[n]) {
		n++
	}
	return max(n, 1)
}

// closed is the length of what begins with `from` bytes and ends with the given text,
// or with the query. A quote that is written twice closes one and opens another,
// which comes to the same.
func closed(query string, from int, end string) int {
	if n := strings.Index(query[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(query)
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
