package page

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/actions"
	"github.com/fulgurite/fulgurite/page/decisions"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
)

// promptVersionsBody is the page of the versions of a run's prompts.
type promptVersionsBody struct {
	Path     string
	Versions []promptVersionRow
	Left     int // older versions that are not shown
	History  []decisions.Event
	Earlier  bool
	Pinned   bool
	Acts     []actions.Link
	Why      string
}

// promptVersionRow is a version of the prompts. Weights of the embedded version are the digest
// of the prompts.
type promptVersionRow struct {
	versionRow
	Candidate link
}

// promptVersionBody is the page of a version of the prompts.
type promptVersionBody struct {
	Row         promptVersionRow
	Versions    string // path of the list of versions
	Ancestors   []link // the parent first
	Evaluations []evaluationRow
	Events      []decisions.Event
	Splits      []record.Kind
	Promoted    *int // the promoted version, if it is another
	Other       string
	Texts       []textPair
	Rules       []string // where the texts are put
	Unread      string   // why the texts are not shown
	Acts        []actions.Link
	Why         string
}

// promptVersions shows the versions of the prompts of a run that searches for better ones.
func (s *Server) promptVersions(ctx context.Context, run record.Run) (view, error) {
	b := promptVersionsBody{Path: runPath(run.Name) + "/versions"}
	all, err := s.Records.PromptVersions(ctx, run.Name)
	if err != nil {
		return view{}, err
	}
	l, err := s.lineage(ctx, run, record.PromptsPolicy, 0, len(all))
	if err != nil {
		return view{}, err
	}
	b.Left = max(0, len(all)-versionsPerPage)
	for _, v := range slices.Backward(all[b.Left:]) {
		b.Versions = append(b.Versions, promptRow(l, v))
	}
	acts := s.pointerActs(ctx, run)
	b.Acts, b.Why = acts.Links, acts.Why
	b.History, b.Earlier, b.Pinned, err = s.pointerHistory(ctx, run)
	v := runView("prompt_versions", run, "Versions", link{Text: "Versions"})
	v.Body = b
	return v, err
}

func promptRow(l lineage, v record.PromptVersion) promptVersionRow {
	row := promptVersionRow{versionRow: l.row(model.Version{
		VersionID: model.VersionID{Run: v.Run, Policy: record.PromptsPolicy, Number: v.Number}, Parent: v.Parent, Weights: v.Prompts, Created: v.At,
	})}
	if v.Candidate != "" {
		row.Candidate = link{Text: format.FirstLine(v.Candidate)[:min(8, len(format.FirstLine(v.Candidate)))], Path: promptsPath(v.Run) + "/" + v.Candidate}
	}
	return row
}

// promptVersion shows a version of the prompts.
func (s *Server) promptVersion(ctx context.Context, run record.Run, n int) (view, error) {
	all, err := s.Records.PromptVersions(ctx, run.Name)
	if err != nil {
		return view{}, err
	}
	at := slices.IndexFunc(all, func(v record.PromptVersion) bool { return v.Number == n })
	if at < 0 {
		return view{}, fmt.Errorf("%w: the prompts of run %s have no version %d", record.ErrNotFound, run.Name, n)
	}
	l, err := s.lineage(ctx, run, record.PromptsPolicy, n, n+1)
	if err != nil {
		return view{}, err
	}
	acts := s.pointerActs(ctx, run)
	b := promptVersionBody{Row: promptRow(l, all[at]), Versions: runPath(run.Name) + "/versions", Why: acts.Why}
	b.Acts = acts.OfVersion(n, n == l.promoted, b.Row.Once, false)
	if l.promoted >= 0 && l.promoted != n {
		b.Promoted = &l.promoted
	}
	for _, e := range l.evaluations {
		b.Evaluations = append(b.Evaluations, rowOfEvaluation(run, e, l.fraction))
		b.Splits = append(b.Splits, e.Kind)
	}
	for _, p := range l.moves {
		b.Events = append(b.Events, decisions.OfMove(p))
	}
	for _, d := range l.decisions {
		b.Events = append(b.Events, decisions.OfDecision(d))
	}
	byNumber := map[int]record.PromptVersion{}
	for _, v := range all {
		byNumber[v.Number] = v
	}
	for v, ok := all[at], true; ok && v.Parent >= 0 && len(b.Ancestors) < ancestorsShown; {
		if v, ok = byNumber[v.Parent]; ok {
			b.Ancestors = append(b.Ancestors, link{Text: strconv.Itoa(v.Number), Path: versionPath(run.Name, v.Number)})
		}
	}
	s.textsOfVersion(ctx, &b, all[at], byNumber)
	v := runView("prompt_version", run, "Versions", link{Text: "Versions", Path: b.Versions}, link{Text: fmt.Sprintf("Version %d", n)})
	v.Body = b
	return v, nil
}

// textsOfVersion adds the texts, beside those of the parent.
func (s *Server) textsOfVersion(ctx context.Context, b *promptVersionBody, v record.PromptVersion, all map[int]record.PromptVersion) {
	texts, set, err := s.textsOf(ctx, v)
	if err != nil {
		b.Unread = format.FirstLine(err.Error())
		return
	}
	for _, r := range set.Rules() {
		b.Rules = append(b.Rules, format.FirstLine(fmt.Sprintf("%s: %s", r.Prompt, r.Match)))
	}
	var old []search.Prompt
	if parent, ok := all[v.Parent]; ok {
		if old, _, err = s.textsOf(ctx, parent); err == nil {
			b.Other = fmt.Sprintf("version %d", v.Parent)
		}
	}
	b.Texts = besideTexts(old, texts)
}

// textsOf reads the texts of a version of the prompts, by name.
func (s *Server) textsOf(ctx context.Context, v record.PromptVersion) ([]search.Prompt, prompts.Set, error) {
	data, err := s.Blobs.Get(ctx, v.Prompts)
	if err != nil {
		return nil, prompts.Set{}, fmt.Errorf("read version %d of the prompts of run %s: %w", v.Number, v.Run, err)
	}
	set, err := prompts.Decode(data)
	if err != nil {
		return nil, set, fmt.Errorf("version %d of the prompts of run %s: %w", v.Number, v.Run, err)
	}
	var out []search.Prompt
	for _, name := range set.Prompts().Names() {
		text, err := set.Prompts().Text(name)
		if err != nil {
			return nil, set, fmt.Errorf("version %d of the prompts of run %s: %w", v.Number, v.Run, err)
		}
		out = append(out, search.Prompt{Name: name, Text: text})
	}
	return out, set, nil
}

// pairTexts lays the texts of two versions of prompts beside each other. It returns nil if a
// reference is of no version of prompts.
func (s *Server) pairTexts(ctx context.Context, a, b string) ([]textPair, error) {
	var sides [2][]search.Prompt
	for i, reference := range []string{a, b} {
		id, ok := versionOf(reference)
		if !ok {
			return nil, nil
		}
		all, err := s.Records.PromptVersions(ctx, id.Run)
		if err != nil {
			return nil, err
		}
		at := slices.IndexFunc(all, func(v record.PromptVersion) bool { return v.Number == id.Number })
		if at < 0 {
			return nil, nil
		}
		if sides[i], _, err = s.textsOf(ctx, all[at]); err != nil {
			return nil, err
		}
	}
	return besideTexts(sides[0], sides[1]), nil
}
