// Package listing lets a reader search, filter and sort long lists of the page, by the address:
// it works without a script, and what it shows can be kept as a link.
//
// It is not where rows come from: its caller reads them, and may leave the search to the store.
package listing

import (
	_ "embed" // for the template
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/page/format"
)

// Template defines the templates "search", the form of a list, and "more", the links to the rest
// of it. Both take a *Form, which may be nil.
//
//go:embed listing.html
var Template string

// SearchAfter is how many rows a list has at most that can't be searched and sorted: a reader
// sees them all.
const SearchAfter = 20

// Form is the form with which a reader searches, filters and sorts a list, and the links to
// the rest of the list. It is a form of the address: it works without a script, and its answer
// can be kept as a link.
type Form struct {
	Prefix       string // of the parameters' names
	Anchor       string // of the list in the page, or ""
	Search       string // what the rows must contain
	Filters      []Option
	Sorts        []Option
	Kept         []Parameter // of the page's other parts
	Found, Total int         // rows
	Clear        string      // query of the whole list, "" if it is shown
	Before, Next string      // queries of the rows before and after
	query        url.Values
}

// Option is something that a reader can choose.
type Option struct {
	Name, Text string
	Here       bool
}

// Parameter is a parameter of an address.
type Parameter struct{ Name, Value string }

// Order says how the rows of a list can be searched, filtered and sorted.
type Order[T any] struct {
	Prefix, Anchor string
	Text           func(T) string // that is searched
	Filters        []Filter[T]    // the first keeps all
	Sorts          []Sort[T]      // the first is the order in which the rows are given
}

// Filter keeps some of the rows.
type Filter[T any] struct {
	Name, Text string
	Keep       func(T) bool
}

// Sort is an order of the rows.
type Sort[T any] struct {
	Name, Text string
	Compare    func(a, b T) int
}

// Choice is what a request asks for of a list.
type Choice struct {
	Word   string // that the rows must contain, in small letters
	Filter string // the name of a filter, "" for the first
	Sort   string // the name of an order, "" for the first
	From   int    // how many rows come before the first that is shown
}

// Narrows reports whether the choice leaves rows out or changes their order.
func (c Choice) Narrows() bool { return c.Word != "" || c.Filter != "" || c.Sort != "" }

// Narrows reports whether a request asks for some rows of a list, or for another order. prefix
// is that of the list's parameters.
func Narrows(r *http.Request, prefix string) bool {
	query := r.URL.Query()
	return query.Get(prefix+"q") != "" || query.Get(prefix+"show") != "" || query.Get(prefix+"sort") != ""
}

// Read returns what a request asks for of a list, and the list's form. It is for callers that
// leave the search to the store: they set Found and Total and call Turn.
func Read[T any](r *http.Request, o Order[T]) (Choice, *Form) {
	query := r.URL.Query()
	of := func(name string) string { return query.Get(o.Prefix + name) }
	c := Choice{Word: strings.ToLower(strings.TrimSpace(of("q"))), From: number(of("from"))}
	f := &Form{Prefix: o.Prefix, Anchor: o.Anchor, Search: format.Clip(of("q"), format.MaxOfLine).Text, query: query}
	kept := url.Values{}
	for name, values := range query {
		if !slices.Contains([]string{o.Prefix + "q", o.Prefix + "show", o.Prefix + "sort", o.Prefix + "from"}, name) {
			kept[name] = values
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kept)) {
		for _, value := range kept[name] {
			f.Kept = append(f.Kept, Parameter{name, value})
		}
	}
	for i, one := range o.Filters {
		here := one.Name == of("show")
		if here && i > 0 {
			c.Filter = one.Name
		}
		f.Filters = append(f.Filters, Option{one.Name, one.Text, here})
	}
	for i, one := range o.Sorts {
		here := one.Name == of("sort")
		if here && i > 0 {
			c.Sort = one.Name
		}
		f.Sorts = append(f.Sorts, Option{one.Name, one.Text, here})
	}
	if c.Narrows() {
		f.Clear = "?" + kept.Encode() + o.Anchor
	}
	return c, f
}

// Turn adds the links to the rows before and after those that are shown, of which there are
// most on a page. more says that there are rows after them.
func (f *Form) Turn(from, most int, more bool) {
	at := func(from int) string {
		to := url.Values{}
		for name, values := range f.query {
			to[name] = values
		}
		to.Set(f.Prefix+"from", strconv.Itoa(from))
		return "?" + to.Encode() + f.Anchor
	}
	if from > 0 {
		f.Before = at(max(0, from-most))
	}
	if more {
		f.Next = at(from + most)
	}
}

// Narrow returns the rows that a request asks for, at most so many, and the form for the list.
// The form is nil if the list is so short that nobody needs it.
func Narrow[T any](r *http.Request, rows []T, most int, o Order[T]) ([]T, *Form) {
	c, f := Read(r, o)
	f.Total = len(rows)
	if c.Word != "" || c.Filter != "" {
		keep := func(T) bool { return true }
		for _, one := range o.Filters {
			if c.Filter != "" && one.Name == c.Filter {
				keep = one.Keep
			}
		}
		rows = slices.DeleteFunc(slices.Clone(rows), func(row T) bool {
			return !strings.Contains(strings.ToLower(o.Text(row)), c.Word) || !keep(row)
		})
	}
	for _, one := range o.Sorts {
		if c.Sort != "" && one.Name == c.Sort {
			rows = slices.Clone(rows)
			slices.SortStableFunc(rows, one.Compare)
		}
	}
	f.Found = len(rows)
	from := min(c.From, len(rows))
	f.Turn(from, most, from+most < len(rows))
	rows = rows[from:min(from+most, len(rows))]
	if f.Total <= SearchAfter && !c.Narrows() {
		return rows, nil
	}
	return rows, f
}

// number reads a number that counts rows. What is none is 0.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
