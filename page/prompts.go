package page

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/page/listing"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
)

const (
	// candidatesPerPage is how many candidates a list has.
	candidatesPerPage = 100
	// maxDepth is how deep candidates are indented. Deeper ones stand below each other.
	maxDepth = 12
	// promptsNamed is how many changed prompts a row names.
	promptsNamed = 3
)

// promptsPath returns the path of the candidates of a search.
func promptsPath(run string) string { return runPath(run) + "/prompts" }

func candidatePath(run string, number int) string {
	return fmt.Sprintf("%s/%d", promptsPath(run), number)
}

// promptsBody is the page of the candidates of a search.
type promptsBody struct {
	Making     bool
	Unread     string
	Total      int
	Candidates []candidateRow
	Search     *listing.Form
	// Left is the number of rejected candidates that the page leaves out. All is the query of
	// the page that includes them, or, on that page, of the one that leaves them out.
	Left int
	All  string
}

// candidateRow is a candidate in a list.
type candidateRow struct {
	Number   int
	ID       string
	Path     string
	Depth    int // in the tree, at most maxDepth
	Parents  []link
	Proposal int // -1 for the seed
	Verdict  string
	Good     bool // it was accepted or measured
	Merge    bool
	// Before and After are the means on the tasks where it was compared with its parents.
	Before, After *float64
	Score         *float64
	Best          bool // was the best when it was measured
	Leads         bool // is the best of all
	Version       int  // -1 for none
	VersionPath   string
	Promoted      bool
	Changed       string
	// Hidden is the number of its children that the page leaves out.
	Hidden int
}

// Way is the class of a row's change on the tasks where it was compared.
func (r candidateRow) Way() string {
	switch {
	case r.Before == nil || r.After == nil || *r.Before == *r.After:
		return ""
	case *r.After > *r.Before:
		return "up"
	}
	return "down"
}

// DepthClass is the class that indents a row.
func (r candidateRow) DepthClass() string { return fmt.Sprintf("depth%d", r.Depth) }

// candidateRows returns the rows of all candidates by number, without their depths.
func candidateRows(found *promptsearch.Search) []candidateRow {
	run := found.Run.Name
	leader, led := found.Best()
	compared := comparisons(found)
	out := make([]candidateRow, len(found.Candidates))
	for i, c := range found.Candidates {
		row := candidateRow{
			Number: c.Number, ID: c.ID, Path: candidatePath(run, c.Number), Proposal: c.Proposal, Verdict: verdictText(c.Verdict),
			Good: c.Verdict == search.Accepted || c.Verdict == search.Measured, Merge: c.Merge,
			Score: c.Score, Best: c.Best, Leads: led && c.Number == leader.Number, Version: c.Version, Promoted: c.Version >= 0 && c.Version == found.Promoted,
			Changed: changedNames(c.Changed),
		}
		if d := compared[c.ID]; d != nil {
			row.Before, row.After = comparedMeans(d)
		}
		if c.Version >= 0 {
			row.VersionPath = versionPath(run, c.Version)
		}
		for _, p := range c.Parents {
			row.Parents = append(row.Parents, link{Text: strconv.Itoa(p), Path: candidatePath(run, p)})
		}
		out[i] = row
	}
	return out
}

// comparisons returns the last decision about each candidate that compared scores, by id.
func comparisons(found *promptsearch.Search) map[string]*optimize.Decision {
	out := map[string]*optimize.Decision{}
	for i, d := range found.Decisions {
		if d.Candidate != nil && d.After != nil {
			out[d.Candidate.ID] = &found.Decisions[i]
		}
	}
	return out
}

// comparedMeans returns the means of both sides of a decision. A merge was compared with the
// better of its parents.
func comparedMeans(d *optimize.Decision) (before, after *float64) {
	after = meanOfKnown(d.After)
	if !d.Merge {
		return meanOfKnown(d.Before), after
	}
	if parent := betterParent(d); parent >= 0 && len(d.Tasks) > 0 {
		mean := *d.Before[parent] / float64(len(d.Tasks))
		before = &mean
	}
	return before, after
}

// betterParent returns which parent of a merge has more on the tasks where they were compared,
// or -1.
func betterParent(d *optimize.Decision) int {
	best := -1
	for i, total := range d.Before {
		if total != nil && (best < 0 || *total > *d.Before[best]) {
			best = i
		}
	}
	return best
}

func changedNames(names []string) string {
	shown := strings.Join(names[:min(len(names), promptsNamed)], ", ")
	if more := len(names) - promptsNamed; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return format.FirstLine(shown)
}

// meanOfKnown returns the mean of the scores that there are, or nil.
func meanOfKnown(scores []*float64) *float64 {
	sum, n := 0.0, 0
	for _, s := range scores {
		if s != nil {
			sum, n = sum+*s, n+1
		}
	}
	if n == 0 {
		return nil
	}
	sum /= float64(n)
	return &sum
}

// asTree orders candidates so that each is followed by its descendants. A merge stands below
// its first parent.
func asTree(found *promptsearch.Search, rows []candidateRow) []candidateRow {
	children := make([][]int, len(rows))
	var roots []int
	for i, c := range found.Candidates {
		if len(c.Parents) == 0 {
			roots = append(roots, i)
		} else {
			children[c.Parents[0]] = append(children[c.Parents[0]], i)
		}
	}
	out := make([]candidateRow, 0, len(rows))
	var add func(i, depth int)
	add = func(i, depth int) {
		row := rows[i]
		row.Depth = min(depth, maxDepth)
		out = append(out, row)
		for _, child := range children[i] {
			add(child, depth+1)
		}
	}
	for _, i := range roots {
		add(i, 0)
	}
	return out
}

// withoutRejected leaves out the candidates that were not good enough and from which nothing
// was made, and counts them at their parents.
func withoutRejected(found *promptsearch.Search, rows []candidateRow) []candidateRow {
	parent := make([]bool, len(found.Candidates))
	for _, c := range found.Candidates {
		for _, p := range c.Parents {
			parent[p] = true
		}
	}
	hidden := map[int]int{}
	keep := func(row candidateRow) bool { return row.Good || parent[row.Number] || row.Version >= 0 }
	for _, row := range rows {
		if of := found.Candidates[row.Number].Parents; !keep(row) && len(of) > 0 {
			hidden[of[0]]++
		}
	}
	out := slices.DeleteFunc(slices.Clone(rows), func(row candidateRow) bool { return !keep(row) })
	for i := range out {
		out[i].Hidden = hidden[out[i].Number]
	}
	return out
}

func (s *Server) prompts(r *http.Request) (view, error) {
	ctx := r.Context()
	run, err := s.find(r)
	if err != nil {
		return view{}, err
	}
	if !searches(run) {
		return view{}, fmt.Errorf("%w: run %s searches for no prompts", record.ErrNotFound, run.Name)
	}
	answer, err := s.searchOf(ctx, run)
	if err != nil {
		return view{}, err
	}
	b := promptsBody{Making: answer.Making}
	if answer.Err != nil {
		b.Unread = format.FirstLine(answer.Err.Error())
	}
	if found := answer.Value; found != nil {
		b.list(r, found)
	}
	v := runView("prompts", run, "Prompts", link{Text: "Prompts"})
	v.Body = b
	return v, nil
}

// list adds the candidates that a request asks for.
func (b *promptsBody) list(r *http.Request, found *promptsearch.Search) {
	rows := asTree(found, candidateRows(found))
	b.Total = len(rows)
	query := r.URL.Query()
	if !listing.Narrows(r, "") && len(rows) > listing.SearchAfter {
		if shown := withoutRejected(found, rows); query.Has("all") {
			query.Del("all")
			query.Del("from")
			b.All = "?" + query.Encode()
		} else if len(shown) < len(rows) {
			b.Left, rows = len(rows)-len(shown), shown
			query.Del("from")
			query.Set("all", "1")
			b.All = "?" + query.Encode()
		}
	}
	order := candidateOrder()
	asked, _ := listing.Read(r, order)
	b.Candidates, b.Search = listing.Narrow(r, rows, candidatesPerPage, order)
	if b.Search != nil {
		b.Search.Total = b.Total
	}
	if asked.Narrows() {
		for i := range b.Candidates {
			b.Candidates[i].Depth = 0 // parents may be missing
		}
	} else if b.Search == nil && b.Total > listing.SearchAfter {
		_, b.Search = listing.Read(r, order)
		b.Search.Found, b.Search.Total = len(rows), b.Total
	}
}

// candidateOrder says how candidates can be searched, filtered and sorted.
func candidateOrder() listing.Order[candidateRow] {
	gain := func(c candidateRow) *float64 {
		if c.Before == nil || c.After == nil {
			return nil
		}
		d := *c.After - *c.Before
		return &d
	}
	return listing.Order[candidateRow]{
		Text: func(c candidateRow) string { return fmt.Sprintf("%d %s %s %s", c.Number, c.ID, c.Verdict, c.Changed) },
		Filters: []listing.Filter[candidateRow]{
			{Text: "all"},
			{Name: "good", Text: "accepted or measured", Keep: func(c candidateRow) bool { return c.Good }},
			{Name: "rejected", Text: "not accepted", Keep: func(c candidateRow) bool { return !c.Good }},
			{Name: "best", Text: "the best when measured", Keep: func(c candidateRow) bool { return c.Best }},
			{Name: "merge", Text: "of two parents", Keep: func(c candidateRow) bool { return c.Merge }},
		},
		Sorts: []listing.Sort[candidateRow]{
			{Text: "tree"},
			{Name: "score", Text: "validation score, highest first", Compare: func(a, b candidateRow) int { return compareKnown(a.Score, b.Score, -1) }},
			{Name: "gain", Text: "gain on the minibatch, highest first", Compare: func(a, b candidateRow) int { return compareKnown(gain(a), gain(b), -1) }},
			{Name: "newest", Text: "newest", Compare: func(a, b candidateRow) int { return cmp.Compare(b.Number, a.Number) }},
			{Name: "oldest", Text: "oldest", Compare: func(a, b candidateRow) int { return cmp.Compare(a.Number, b.Number) }},
		},
	}
}

// withQuery returns a path with one parameter.
func withQuery(path, name, value string) string {
	return path + "?" + url.Values{name: {value}}.Encode()
}
