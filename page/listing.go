package page

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/page/format"
)

// searchAfter is how many rows a list has at most that can't be searched and sorted: a reader
// sees them all.
const searchAfter = 20

// listing is the form with which a reader searches, filters and sorts a list, and the links to
// the rest of the list. It is a form of the address: it works without a script, and its answer
// can be kept as a link.
type listing struct {
	Prefix       string // of the parameters' names
	Anchor       string // of the list in the page, or ""
	Search       string // what the rows must contain
	Filters      []option
	Sorts        []option
	Kept         []parameter // of the page's other parts
	Found, Total int         // rows
	Clear        string      // query of the whole list, "" if it is shown
	Before, Next string      // queries of the rows before and after
}

// option is something that a reader can choose.
type option struct {
	Name, Text string
	Here       bool
}

// parameter is a parameter of an address.
type parameter struct{ Name, Value string }

// ordering says how the rows of a list can be searched, filtered and sorted.
type ordering[T any] struct {
	Prefix, Anchor string
	Long           bool           // the list has more rows than are given
	Text           func(T) string // that is searched
	Filters        []filter[T]    // the first keeps all
	Sorts          []sorting[T]   // the first is the order in which the rows are given
}

type filter[T any] struct {
	Name, Text string
	Keep       func(T) bool
}

type sorting[T any] struct {
	Name, Text string
	Compare    func(a, b T) int
}

// narrows reports whether a request asks for some rows of a list, or for another order. prefix
// is that of the list's parameters.
func narrows(r *http.Request, prefix string) bool {
	query := r.URL.Query()
	return query.Get(prefix+"q") != "" || query.Get(prefix+"show") != "" || query.Get(prefix+"sort") != ""
}

// narrow returns the rows that a request asks for, at most so many, and the form for the list.
// The form is nil if the list is so short that nobody needs it.
func narrow[T any](r *http.Request, rows []T, most int, o ordering[T]) ([]T, *listing) {
	query := r.URL.Query()
	of := func(name string) string { return query.Get(o.Prefix + name) }
	l := &listing{Prefix: o.Prefix, Anchor: o.Anchor, Total: len(rows), Search: format.Clip(of("q"), format.MostOfLine).Text}
	kept := url.Values{}
	for name, values := range query {
		if !slices.Contains([]string{o.Prefix + "q", o.Prefix + "show", o.Prefix + "sort", o.Prefix + "from"}, name) {
			kept[name] = values
		}
	}
	for _, name := range sorted(kept) {
		l.Kept = append(l.Kept, parameter{name, kept.Get(name)})
	}
	chosen, ordered := 0, 0
	for i, f := range o.Filters {
		if f.Name == of("show") {
			chosen = i
		}
	}
	for i, s := range o.Sorts {
		if s.Name == of("sort") {
			ordered = i
		}
	}
	for i, f := range o.Filters {
		l.Filters = append(l.Filters, option{f.Name, f.Text, i == chosen})
	}
	for i, s := range o.Sorts {
		l.Sorts = append(l.Sorts, option{s.Name, s.Text, i == ordered})
	}
	narrowed := of("q") != "" || chosen > 0 || ordered > 0
	if narrowed {
		l.Clear = "?" + kept.Encode() + o.Anchor
		word := strings.ToLower(strings.TrimSpace(of("q")))
		rows = slices.DeleteFunc(slices.Clone(rows), func(row T) bool {
			return !strings.Contains(strings.ToLower(o.Text(row)), word) || chosen > 0 && !o.Filters[chosen].Keep(row)
		})
	}
	if ordered > 0 {
		slices.SortStableFunc(rows, o.Sorts[ordered].Compare)
	}
	l.Found = len(rows)
	from := min(number(r, o.Prefix+"from"), len(rows))
	at := func(from int) string {
		to := url.Values{}
		for name, values := range query {
			to[name] = values
		}
		to.Set(o.Prefix+"from", strconv.Itoa(from))
		return "?" + to.Encode() + o.Anchor
	}
	if from > 0 {
		l.Before = at(max(0, from-most))
	}
	if from+most < len(rows) {
		l.Next = at(from + most)
	}
	rows = rows[from:min(from+most, len(rows))]
	if l.Total <= searchAfter && !narrowed && !o.Long {
		return rows, nil
	}
	return rows, l
}

func sorted(values url.Values) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
