package results

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/promptsearch"
)

// Prompts is `fulgurite prompts`.
type Prompts struct {
	Run_   string   `arg:"" name:"run" help:"Name of the run."`
	Which  []string `arg:"" optional:"" name:"candidate" help:"With --text, --diff and --export: the number of a candidate, the beginning of its id, best, @NUMBER for a version, or @promoted (default)."`
	All    bool     `help:"List every candidate in the order of their numbers, not only the best."`
	Text   bool     `help:"Print the texts of a candidate or version."`
	Diff   bool     `help:"Show what changed between two candidates or versions."`
	Export string   `help:"Write each text of a candidate or version to a file there, and prompts.yaml with the section that a spec can copy." placeholder:"DIRECTORY" type:"path"`
	JSON   bool     `help:"Print JSON." name:"json"`

	Records state.RecordFlags `embed:""`
}

// promptsResult is the JSON output of `fulgurite prompts`.
type promptsResult struct {
	Run        string            `json:"run"`
	Algorithm  string            `json:"algorithm"`
	Versions   []promptVersion   `json:"versions"`
	Candidates []promptCandidate `json:"candidates"`
}

// promptVersion is a version of the prompts.
type promptVersion struct {
	Version int `json:"version"`
	// Prompts is the digest of all texts and rules, as the terms of attempts name it.
	Prompts string `json:"prompts"`
	// Candidate is the number of the search's candidate. It is absent until the search has
	// measured the spec's own prompts, which are version 0.
	Candidate *int     `json:"candidate,omitempty"`
	Promoted  bool     `json:"promoted"`
	Pinned    bool     `json:"pinned,omitempty"`
	Gate      *float64 `json:"gate,omitempty"`
	Test      *float64 `json:"test,omitempty"`
}

// promptCandidate is a candidate of the search.
type promptCandidate struct {
	Number int    `json:"number"`
	ID     string `json:"id"`
	// Parents are the numbers of the candidates that it was made from.
	Parents []int `json:"parents"`
	// Proposal counts the proposals from 0; -1 is the spec's own prompts.
	Proposal int            `json:"proposal"`
	Merge    bool           `json:"merge,omitempty"`
	Verdict  search.Verdict `json:"verdict"`
	// Score is the mean on the whole validation split. It is absent if it was not measured.
	Score *float64 `json:"score,omitempty"`
	// Best says that it was the best when it was measured.
	Best bool `json:"best,omitempty"`
	// Changed are the names of the prompts that are not those of its first parent.
	Changed []string `json:"changed,omitempty"`
	// Version is the version of the prompts that it became.
	Version *int `json:"version,omitempty"`
}

// promptTexts are the texts of a candidate or version.
type promptTexts struct {
	Name string `json:"name"` // such as "candidate 3" or "version 1"
	ID   string `json:"id"`   // of the candidate
	// Prompts is the digest of all texts and rules.
	Prompts string       `json:"prompts"`
	Texts   []promptText `json:"texts"`
	// Files are the paths of what was written.
	Files []string `json:"files,omitempty"`

	candidate promptsearch.Candidate
}

type promptText struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// promptsDiff is what changed between two of them.
type promptsDiff struct {
	From    string       `json:"from"`
	To      string       `json:"to"`
	Changed []textChange `json:"changed"`
}

type textChange struct {
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Outputs returns what the command prints as JSON.
func (*Prompts) Outputs() []any { return []any{promptsResult{}, promptTexts{}, promptsDiff{}} }

// check returns an error for arguments that don't go together.
func (c *Prompts) check() error {
	chosen, most := 0, 1
	for _, flag := range []bool{c.Text, c.Diff, c.Export != "", c.All} {
		if flag {
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return terminal.Usagef("--all, --text, --diff and --export: give one of them")
	case c.Diff:
		most = 2
	case c.All || chosen == 0:
		most = 0
	}
	switch {
	case len(c.Which) > most && most == 0:
		return terminal.Usagef("%q: a candidate is for --text, --diff or --export", c.Which[0])
	case len(c.Which) > most:
		return terminal.Usagef("%q: that is one candidate too many", c.Which[most])
	case c.Diff && len(c.Which) != most:
		return terminal.Usagef("--diff: give two candidates or versions, such as 0 best")
	}
	return nil
}

// Run lists prompts, prints them, compares them or writes them.
func (c *Prompts) Run(ctx context.Context, s *state.Flags, t *terminal.Terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	records, err := s.OpenRecords(ctx, t, c.Records)
	if err != nil {
		return err
	}
	defer records.Close()
	found, err := promptsearch.Read(ctx, records.Store, c.Run_)
	if errors.Is(err, promptsearch.ErrNone) {
		return terminal.Usage(err)
	}
	if err != nil {
		return err
	}
	switch {
	case c.Diff:
		return c.diff(t, found)
	case c.Text, c.Export != "":
		return c.texts(t, found)
	}
	lines, err := promptLines(ctx, records.Store, found)
	if err != nil {
		return err
	}
	if c.JSON {
		return t.JSON(c.result(found, lines))
	}
	c.list(t, s, found, lines)
	return printHistory(ctx, t, records.Store, c.Run_, record.PromptsPolicy)
}

// result returns the JSON of a list. It has all candidates.
func (c *Prompts) result(found *promptsearch.Search, versions []promptVersion) promptsResult {
	out := promptsResult{Run: c.Run_, Algorithm: found.Spec.Optimizer.Algorithm, Versions: versions, Candidates: make([]promptCandidate, len(found.Candidates))}
	for i, one := range found.Candidates {
		out.Candidates[i] = promptCandidate{
			Number: one.Number, ID: one.ID, Parents: append([]int{}, one.Parents...), Proposal: one.Proposal, Merge: one.Merge,
			Verdict: one.Verdict, Score: one.Score, Best: one.Best, Changed: one.Changed,
		}
		if one.Version >= 0 {
			out.Candidates[i].Version = &one.Version
		}
	}
	return out
}

// shownCandidates is how many candidates, the best ones, are listed without --all.
const shownCandidates = 10

// list prints the versions and the candidates.
func (c *Prompts) list(t *terminal.Terminal, s *state.Flags, found *promptsearch.Search, versions []promptVersion) {
	t.Printf("%8s  %-9s  %6s  %6s  %9s  %s\n", "version", "", "gate", "test", "candidate", "prompts")
	for _, v := range versions {
		mark, candidate := "", ""
		switch {
		case v.Pinned:
			mark = "pinned"
		case v.Promoted:
			mark = "promoted"
		}
		if v.Candidate != nil {
			candidate = strconv.Itoa(*v.Candidate)
		}
		t.Printf("%8d  %-9s  %6s  %6s  %9s  %s\n", v.Version, mark, optional(v.Gate), optional(v.Test), candidate, short(v.Prompts))
	}
	shown := found.Candidates
	if !c.All {
		shown = best(shown, shownCandidates)
	}
	if len(shown) == 0 {
		t.Printf("\nNo candidate is measured yet.\n")
		return
	}
	t.Printf("\n")
	w := tabwriter.NewWriter(t.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "candidate\tparents\tproposal\tverdict\tvalidation\tchanged")
	for _, one := range shown {
		fmt.Fprintln(w, strings.Join(candidateCells(one), "\t"))
	}
	_ = w.Flush() // like the terminal's own writes
	if more := len(found.Candidates) - len(shown); more > 0 {
		t.Printf("%s more: `%s` lists all\n", readable.Count(more, "candidate"), s.Command("prompts", c.Run_, "--all"))
	}
}

// candidateCells returns the cells of a candidate's line.
func candidateCells(c promptsearch.Candidate) []string {
	parents := make([]string, len(c.Parents))
	for i, p := range c.Parents {
		parents[i] = strconv.Itoa(p)
	}
	proposal, changed := strconv.Itoa(c.Proposal), strings.Join(c.Changed, ", ")
	switch {
	case c.Proposal < 0:
		proposal, changed = "", "the first prompts"
	case c.Merge:
		changed += " (merge)"
	}
	return []string{strconv.Itoa(c.Number), strings.Join(parents, ", "), proposal, string(c.Verdict), optional(c.Score), changed}
}

// best returns the candidates with the highest means on the validation split, at most most
// of them.
func best(all []promptsearch.Candidate, most int) []promptsearch.Candidate {
	measured := slices.DeleteFunc(slices.Clone(all), func(c promptsearch.Candidate) bool { return c.Score == nil })
	slices.SortStableFunc(measured, func(a, b promptsearch.Candidate) int { return cmp.Compare(*b.Score, *a.Score) })
	return measured[:min(len(measured), most)]
}

// choose returns the candidate or version that a word names. An empty word is the promoted
// version.
func choose(found *promptsearch.Search, word string) (promptTexts, error) {
	out := promptTexts{Name: "candidate " + word}
	var ok bool
	number, isVersion := strings.CutPrefix(cmp.Or(word, "@promoted"), "@")
	n, err := strconv.Atoi(number)
	switch {
	case isVersion:
		if number == "promoted" {
			n, err = max(found.Promoted, 0), nil
		}
		out.Name = fmt.Sprintf("version %d", n)
		if err == nil {
			out.candidate, ok = found.Version(n)
		}
	case word == "best":
		out.candidate, ok = found.Best()
		out.Name = fmt.Sprintf("candidate %d", out.candidate.Number)
	case err == nil && n >= 0 && n < len(found.Candidates) && len(word) < 6:
		out.candidate, ok = found.Candidates[n], true
	default:
		if out.candidate, ok = found.Find(word); ok {
			out.Name = fmt.Sprintf("candidate %d", out.candidate.Number)
		}
	}
	if !ok {
		return out, fmt.Errorf("candidate %q of run %s: %w", word, found.Run.Name, record.ErrNotFound)
	}
	set, err := found.Prompts(out.candidate)
	if err != nil {
		return out, fmt.Errorf("prompts of %s: %w", out.Name, err)
	}
	out.ID, out.Prompts = out.candidate.ID, set.Digest()
	for _, p := range out.candidate.Prompts {
		out.Texts = append(out.Texts, promptText{p.Name, p.Text})
	}
	return out, nil
}

// texts prints the texts of a candidate, or writes them to files.
func (c *Prompts) texts(t *terminal.Terminal, found *promptsearch.Search) error {
	which := ""
	if len(c.Which) > 0 {
		which = c.Which[0]
	}
	chosen, err := choose(found, which)
	if err != nil {
		return err
	}
	if c.Export != "" {
		if chosen.Files, err = exportPrompts(c.Export, *found.Spec.Prompts, chosen); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		return t.JSON(chosen)
	case c.Export != "":
		t.Printf("The prompts of %s of run %s (%s) are in %s\n", chosen.Name, c.Run_, chosen.Prompts, c.Export)
		return nil
	}
	for i, p := range chosen.Texts {
		if i > 0 {
			t.Printf("\n")
		}
		if len(chosen.Texts) > 1 {
			t.Printf("%s:\n", p.Name)
		}
		printText(t, p.Text)
	}
	return nil
}

// printText prints a text that a model may have written.
func printText(t *terminal.Terminal, text string) {
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		t.Printf("%s\n", terminal.Escape(line))
	}
}
