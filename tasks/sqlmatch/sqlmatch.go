// Package sqlmatch grades SQL: a query is right if it returns the same as the gold query
// of a task, on the task's SQLite database.
//
// The rules follow the official evaluation of a data set. By default it is that of
// Spider, its execution match
// (https://github.com/taoyds/test-suite-sql-eval; Zhong et al., "Semantic Evaluation for
// Text-to-SQL with Distilled Test Suites", 2020):
//
//   - The rows are a multiset. Their order matters only if the gold query has an ORDER BY.
//   - The columns may be in any order.
//   - DISTINCT is removed from both queries unless a grader keeps it.
//   - If the database's folder is a test suite, all databases in it count.
//
// With the metric BIRD the rules are those of BIRD's execution accuracy
// (https://github.com/bird-bench/mini_dev; Li et al., "Can LLM Already Serve as A Database
// Interface?", 2023): the rows are a set, the order of columns counts, DISTINCT stays, and
// there are no test suites.
//
// One rule is wider: a number is equal to the nearest number of the gold result if they
// differ only by rounding, by at most 4 units in the last place, unless both are whole.
//
// Queries are written by models and may be hostile. They run on a connection that can
// only read, with an authorizer that allows only selecting from this one database. There
// are limits on steps, on time, on the rows that are kept, on the size of values, on
// memory and on temporary files. A query that is refused, fails or exceeds a limit is
// wrong; it is not an error, and the outcome says why. An outcome never repeats a value of
// the gold result, at most how many rows and columns that has. An error means that the
// database or the gold query can't be used.
//
// The package is not for general access to SQLite: the store has its own. It calls the
// library below the driver, because database/sql offers neither authorizers nor limits on
// steps, and because the driver changes dates.
package sqlmatch

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/truncate"
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

// Outcome is what a comparison found. It never has values of the gold result: at most how
// many rows and columns that has.
type Outcome struct {
	Right bool
	// Text says what the query did, as a sentence for people. It may repeat parts of the
	// query, which still have to be cleaned and escaped.
	Text string
}

const (
	textRight = "The query returns what the task's query returns."
	// reasonBytes is how much of SQLite's message is repeated. It may name parts of the query.
	reasonBytes = 160
)

// result is how the results of two queries differ, in numbers.
type result struct {
	right bool
	// differs says how they differ; empty if they don't.
	differs string
}

// size describes how much a query returns.
func size(rows, columns int) string {
	return readable.Count(rows, "row") + " of " + readable.Count(columns, "column")
}

// compared describes two results that were both read as far as they can be equal.
func compared(want, got table, ordered bool) result {
	switch {
	case equal(want, got, ordered):
		return result{right: true}
	case len(want.rows) == 0 || len(want.rows) != len(got.rows):
		return result{differs: fmt.Sprintf("returns %s, where %s right", size(len(got.rows), got.columns), expected(want))}
	case ordered && equal(want, got, false):
		return result{differs: fmt.Sprintf("returns the right %s in another order", readable.Count(len(want.rows), "row"))}
	}
	return result{differs: fmt.Sprintf("returns other values: it has %s, as is right", size(len(got.rows), got.columns))}
}

// expected says how much the gold query returns, and continues "where".
func expected(want table) string {
	if len(want.rows) == 0 {
		return "no row is" // any number of columns will do
	}
	verb := " are"
	if len(want.rows) == 1 {
		verb = " is"
	}
	return size(len(want.rows), want.columns) + verb
}

// unequal describes a query that was ended because its result can't be equal any more.
func unequal(err error, want table, columns int) result {
	switch {
	case errors.Is(err, errColumns):
		return result{differs: fmt.Sprintf("returns rows of %s, where %s right", readable.Count(columns, "column"), expected(want))}
	case errors.Is(err, errBytes):
		return result{differs: fmt.Sprintf("returns other values, which are longer: %s right", expected(want))}
	}
	if len(want.rows) == 0 {
		return result{differs: "returns rows, where no row is right"}
	}
	return result{differs: fmt.Sprintf("returns more than %s, where %s right", readable.Count(len(want.rows), "row"), expected(want))}
}

// failed says why a query has no result.
func failed(err error, query string) string {
	var failure sqliteError
	switch {
	case errors.Is(err, errNothing):
		return "The result is no query."
	case errors.Is(err, errSeveral), errors.Is(err, errRefused), errors.Is(err, errNUL):
		return fmt.Sprintf("The query is refused: it has %s.", err)
	case errors.Is(err, errSteps), errors.Is(err, errTime), errors.Is(err, errFiles):
		return fmt.Sprintf("The query was ended: it took %s.", err)
	case errors.As(err, &failure):
		if word := firstToken(query); word != "" && strings.EqualFold(failure.text, `near "`+word+`": syntax error`) {
			return fmt.Sprintf("The result is no query: it begins with %q.", truncate.Ellipsis(word, reasonBytes))
		}
		return fmt.Sprintf("The query fails: %s.", truncate.Ellipsis(failure.text, reasonBytes))
	}
	return fmt.Sprintf("The query fails: %s.", truncate.Ellipsis(err.Error(), reasonBytes))
}

// on adds the database to a text about one of several.
func on(text, path string, files []string) string {
	if len(files) == 1 {
		return text
	}
	return fmt.Sprintf("%s (on %s, one of %d databases)", strings.TrimSuffix(text, "."), filepath.Base(path), len(files)) + "."
}

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
