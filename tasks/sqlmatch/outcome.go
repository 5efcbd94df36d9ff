package sqlmatch

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/truncate"
)

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
