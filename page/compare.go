package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/page/curves"
	"github.com/fulgurite/fulgurite/page/figure"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// mostCompared are the runs that are laid over each other.
	mostCompared = figure.MostLines
	// mostKeys of specs are shown.
	mostKeys = 300
)

// compareBody lays runs over each other.
type compareBody struct {
	Problem string
	Runs    []comparedRun
	Figures []figure.Figure
	Range   curves.Span
	Keys    []keyRow
	More    int // keys that are not shown
	Equal   int // keys that all specs have alike
}

// comparedRun is a run among them. Its place is its colour.
type comparedRun struct {
	runRow
	Place int
	Query string // the same page without the run
}

// keyRow is a key of the specs that not all runs have alike.
type keyRow struct {
	Key    string
	Values []string
}

func (s *Server) compareRuns(r *http.Request) (view, error) {
	ctx := r.Context()
	var b compareBody
	names := slices.Compact(slices.Clone(r.URL.Query()["run"]))
	if len(names) < 2 {
		b.Problem = "Tick two runs or more in the list of runs."
	}
	if len(names) > mostCompared {
		b.Problem = fmt.Sprintf("The first %d of %d runs are shown.", mostCompared, len(names))
		names = names[:mostCompared]
	}
	var runs []record.Run
	for _, name := range names {
		run, err := s.Records.Run(ctx, name)
		if errors.Is(err, trace.ErrNotFound) {
			b.Problem = fmt.Sprintf("There is no run %s.", format.FirstLine(name))
			continue
		}
		if err != nil {
			return view{}, err
		}
		runs = append(runs, run)
	}
	if s.Live != nil {
		runs, _ = s.liveRuns(ctx, runs) // the record has to do where Temporal does not answer
	}
	last := 0
	for i, run := range runs {
		row, err := s.runRow(ctx, run)
		if err != nil {
			return view{}, err
		}
		q := r.URL.Query()
		q["run"] = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == run.Name })
		b.Runs, last = append(b.Runs, comparedRun{row, i, "?" + q.Encode()}), max(last, row.Step)
	}
	b.Range = curves.SpanOf(number(r, "from"), number(r, "to"), last)
	if len(runs) > 0 {
		if err := s.overlay(ctx, &b, runs); err != nil {
			return view{}, err
		}
		b.specs(runs)
	}
	return view{template: "compare", Title: "Comparison", Crumbs: []link{{Text: "Comparison of runs"}}, Body: b}, nil
}

// overlay makes figures with a line for each run.
func (s *Server) overlay(ctx context.Context, b *compareBody, runs []record.Run) error {
	for _, run := range runs {
		steps, err := s.history(ctx, run)
		if err != nil {
			return err
		}
		j, err := s.judged(ctx, run)
		if err != nil {
			return err
		}
		for i, f := range curves.Of(s.curveData(run, b.Range, steps, j.evaluations)) {
			line := figure.Curve{Name: run.Name, Points: f.Lines[0].Points}
			if len(b.Figures) <= i {
				f.Lines = nil
				b.Figures = append(b.Figures, f)
			}
			b.Figures[i].Lines = append(b.Figures[i].Lines, line)
		}
	}
	b.Figures = slices.DeleteFunc(b.Figures, figure.Figure.Empty)
	return nil
}

// specs compares the specs key by key.
func (b *compareBody) specs(runs []record.Run) {
	flat := make([]map[string]string, len(runs))
	all := map[string]bool{}
	for i, run := range runs {
		flat[i] = flatSpec(run.Spec)
		for key := range flat[i] {
			all[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		row := keyRow{Key: format.FirstLine(key)}
		alike := true
		for i := range flat {
			value, ok := flat[i][key]
			if !ok {
				value = format.Dash
			}
			alike = alike && value == row.first(value)
			row.Values = append(row.Values, value)
		}
		switch {
		case alike:
			b.Equal++
		case len(b.Keys) == mostKeys:
			b.More++
		default:
			b.Keys = append(b.Keys, row)
		}
	}
}

func (k keyRow) first(otherwise string) string {
	if len(k.Values) == 0 {
		return otherwise
	}
	return k.Values[0]
}

// flatSpec is a spec as values by their paths, without what is confidential.
func flatSpec(raw json.RawMessage) map[string]string {
	sp, err := spec.Stored(raw)
	if err != nil {
		return map[string]string{"(spec)": "can't be read"}
	}
	text, err := specJSON(sp.WithDefaults())
	var tree any
	if err == nil {
		err = json.Unmarshal([]byte(text), &tree)
	}
	if err != nil {
		return map[string]string{"(spec)": "can't be read"}
	}
	out := map[string]string{}
	flatten(out, "", tree)
	return out
}

func flatten(out map[string]string, path string, v any) {
	object, ok := v.(map[string]any)
	if !ok || len(object) == 0 {
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false) // the template does
		if e.Encode(v) != nil {
			return // what came from JSON always encodes
		}
		out[path] = format.FirstLine(strings.Trim(strings.TrimSpace(text.String()), `"`))
		return
	}
	for key, value := range object {
		flatten(out, strings.TrimPrefix(path+"."+key, "."), value)
	}
}
