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
// 2020, and DISTINCT is removed unless keepDistinct is true. What stands in quotes, and
// the operator IS DISTINCT FROM, stay as they are.
func (p *patterns) prepare(query string, keepDistinct bool) string {
	p.compile()
	if !keepDistinct {
		query = withoutDistinct(query)
	}
	var b, plain strings.Builder
	end := func() {
		text := strings.NewReplacer("> =", ">=", "< =", "<=", "! =", "!=").Replace(plain.String())
		b.WriteString(p.thisYear.ReplaceAllString(text, "2020"))
		plain.Reset()
	}
	for query != "" {
		n := token(query)
		if quoted(query[0]) {
			end()
			b.WriteString(query[:n])
		} else {
			plain.WriteString(query[:n])
		}
		query = query[n:]
	}
	end()
	return b.String()
}

// quoted reports whether a token that begins with this byte is in quotes.
func quoted(c byte) bool { return c == '\'' || c == '"' || c == '`' || c == '[' }

// ordered reports whether the order of a gold query's rows matters.
func (p *patterns) ordered(gold string) bool {
	p.compile()
	return p.order.MatchString(gold)
}

// withoutDistinct removes the word DISTINCT wherever it stands outside of quotes and
// comments, unless it is a part of the operators IS DISTINCT FROM and IS NOT DISTINCT
// FROM.
func withoutDistinct(query string) string {
	var b strings.Builder
	var last, before string // the words or signs before this one
	for query != "" {
		n := token(query)
		word := strings.ToLower(query[:n])
		operator := last == "is" || last == "not" && before == "is"
		if word != "distinct" || operator && firstToken(query[n:]) == "from" {
			b.WriteString(query[:n])
		}
		if !blank(word) {
			before, last = last, word
		}
		query = query[n:]
	}
	return b.String()
}

// firstToken returns the first token of a query that is neither a blank nor a comment, in
// lower case.
func firstToken(query string) string {
	for query != "" {
		n := token(query)
		if !blank(query[:n]) {
			return strings.ToLower(query[:n])
		}
		query = query[n:]
	}
	return ""
}

// blank reports whether a token is a blank or a comment.
func blank(token string) bool {
	return strings.TrimSpace(token) == "" || strings.HasPrefix(token, "--") || strings.HasPrefix(token, "/*")
}

// onlyBlank reports whether text has nothing to execute: blanks, semicolons and
// comments.
func onlyBlank(text string) bool {
	for text != "" {
		n := token(text)
		if !blank(text[:n]) && strings.Trim(text[:n], " \t\r\n\f;") != "" {
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
