package sqlmatch

import (
	"regexp"
	"strings"
	"sync"
)

// patterns has regular expressions of the official evaluation's rules. The zero value is
// ready for use.
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

// prepare returns the query as the official evaluation executes it: comparison operators
// that have a blank inside are joined, MySQL's expression for the current year becomes
// 2020, and DISTINCT is removed unless keepDistinct is true.
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

// withoutDistinct removes the word DISTINCT wherever it stands outside of quotes and
// comments.
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

// token returns the length of the first token of a query: a word, something in quotes, a
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

// closed returns the length of a token that begins with `from` bytes and ends with the
// text end, or at the end of the query. A quote that is written twice ends one token and
// begins another, which has the same effect.
func closed(query string, from int, end string) int {
	if n := strings.Index(query[from:], end); n >= 0 {
		return from + n + len(end)
	}
	return len(query)
}

func wordByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
