package search_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
)

func TestErrorsNameTheSetting(t *testing.T) {
	t.Parallel()
	infinite := math.Inf(1)
	for want, change := range map[string]func(*search.Settings, *search.GEPASettings, *search.APOSettings){
		"prompts: there is none": func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Prompts = nil },
		"prompts[0]: it has no name": func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) {
			s.Prompts[0].Name = ""
		},
		"prompts.prompt0: two prompts": func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) {
			s.Prompts[1].Name = "prompt0"
		},
		"tasks.train: 0 is below 1":        func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Train = 0 },
		"tasks.validation: 0 is below 1":   func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Validation = 0 },
		"optimizer.samples: -1 is below 1": func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Samples = -1 },
		"optimizer.validation_samples: 2000000 is above": func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) {
			s.ValidationSamples = 2_000_000
		},
		"optimizer.patience: -1 is below 0":          func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Patience = -1 },
		"optimizer.perfect: +Inf":                    func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Perfect = &infinite },
		"optimizer.budget.minibatch: 0 is below 1":   func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Budget.Minibatch = 0 },
		"optimizer.budget.validation: 0 is below 1":  func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Budget.Validation = 0 },
		"optimizer.budget.reflections: 0 is below 1": func(s *search.Settings, _ *search.GEPASettings, _ *search.APOSettings) { s.Budget.Reflections = 0 },
		"optimizer.gepa.minibatch: -3 is below 1":    func(_ *search.Settings, g *search.GEPASettings, _ *search.APOSettings) { g.Minibatch = -3 },
		"optimizer.gepa.merges: it has":              func(_ *search.Settings, g *search.GEPASettings, _ *search.APOSettings) { g.Merges = 3 },
		"optimizer.gepa.merges: -1 is below 1":       func(_ *search.Settings, g *search.GEPASettings, _ *search.APOSettings) { g.Merge, g.Merges = true, -1 },
		"optimizer.gepa.merge: two candidates": func(s *search.Settings, g *search.GEPASettings, _ *search.APOSettings) {
			g.Merge, s.Validation = true, 4
		},
		"optimizer.apo.beam: -1 is below 1":             func(_ *search.Settings, _ *search.GEPASettings, a *search.APOSettings) { a.Beam = -1 },
		"optimizer.apo.branch: -1 is below 1":           func(_ *search.Settings, _ *search.GEPASettings, a *search.APOSettings) { a.Branch = -1 },
		"optimizer.apo.rounds: -1 is below 1":           func(_ *search.Settings, _ *search.GEPASettings, a *search.APOSettings) { a.Rounds = -1 },
		"optimizer.apo.gradient_batch: -1 is below 1":   func(_ *search.Settings, _ *search.GEPASettings, a *search.APOSettings) { a.GradientBatch = -1 },
		"optimizer.apo.validation_batch: -1 is below 1": func(_ *search.Settings, _ *search.GEPASettings, a *search.APOSettings) { a.ValidationBatch = -1 },
	} {
		s, g, a := settings(2), search.GEPASettings{}, search.APOSettings{}
		change(&s, &g, &a)
		_, err := search.NewGEPA(s, g)
		if err == nil {
			_, err = search.NewAPO(s, a)
		}
		require.ErrorContains(t, err, want)
	}
}

func TestABudgetTooSmallForACandidateIsRefusedBeforeAnythingIsSpent(t *testing.T) {
	t.Parallel()
	need := map[string]search.Budget{
		"gepa":           {Minibatch: 6, Validation: 16, Reflections: 1},
		"gepa and merge": {Minibatch: 6, Validation: 16, Reflections: 1},
		"apo":            {Minibatch: 4, Validation: 26, Reflections: 2},
	}
	start := func(kind string, s search.Settings) (err error) {
		switch kind {
		case "apo":
			_, err = search.NewAPO(s, search.APOSettings{ValidationBatch: 5})
		default:
			_, err = search.NewGEPA(s, search.GEPASettings{Merge: kind != "gepa"})
		}
		return err
	}
	for kind, budget := range need {
		s := settings(1)
		s.Budget = budget
		require.NoError(t, start(kind, s), kind)
		for name, field := range map[string]*int{"minibatch": &s.Budget.Minibatch, "validation": &s.Budget.Validation, "reflections": &s.Budget.Reflections} {
			if *field == 1 {
				continue // 0 is an error of its own
			}
			*field--
			err := start(kind, s)
			require.ErrorIs(t, err, search.ErrBudget, kind)
			require.ErrorContains(t, err, "optimizer.budget."+name)
			*field++
		}
	}
}

func TestTheSmallestBudgetMeasuresOneCandidate(t *testing.T) {
	t.Parallel()
	s := settings(1)
	s.Budget = search.Budget{Minibatch: 6, Validation: 16, Reflections: 1}
	g := newGEPA(t, s, search.GEPASettings{})
	give(t, g, only(t, g), 0.5)
	give(t, g, only(t, g), 0.5)
	say(t, g, only(t, g), "better")
	give(t, g, only(t, g), 1)
	give(t, g, only(t, g), 0.75)
	done := g.Next().Done
	require.Equal(t, search.EndBudget, done.Reason)
	require.Equal(t, search.PurposeMinibatch, done.Purpose)
	require.Equal(t, "better", done.Winner.Prompts[0].Text)

	s.Budget = search.Budget{Minibatch: 4, Validation: 26, Reflections: 2}
	a := newAPO(t, s, search.APOSettings{ValidationBatch: 5})
	give(t, a, only(t, a), 0.5)
	require.Len(t, round(t, a), 1)
	for _, r := range a.Next().Requests {
		give(t, a, r, map[bool]float64{true: 0.5, false: 0.75}[r.Candidate.Prompts[0].Text == "text0"])
	}
	give(t, a, only(t, a), 0.75)
	done = a.Next().Done
	require.Equal(t, search.EndBudget, done.Reason)
	require.Equal(t, "text0/1", done.Winner.Prompts[0].Text)
}

func TestCandidatesAreNamedByTheirTexts(t *testing.T) {
	t.Parallel()
	one := search.NewCandidate([]search.Prompt{{Name: "a", Text: "x"}, {Name: "b", Text: "y"}})
	swapped := search.NewCandidate([]search.Prompt{{Name: "b", Text: "y"}, {Name: "a", Text: "x"}}, one)
	require.Equal(t, one.ID, swapped.ID)
	for _, other := range [][]search.Prompt{
		{{Name: "a", Text: "y"}, {Name: "b", Text: "x"}},
		{{Name: "a", Text: "x1:by"}},
		{{Name: "a", Text: "x"}},
	} {
		require.NotEqual(t, one.ID, search.NewCandidate(other).ID)
	}
	child := search.NewCandidate([]search.Prompt{{Name: "a", Text: "x"}, {Name: "b", Text: "z"}}, one)
	require.Equal(t, []string{one.ID}, child.Parents)
	require.Equal(t, []string{"b"}, child.Changed)
	text, ok := child.Text("b")
	require.True(t, ok)
	require.Equal(t, "z", text)
	_, ok = child.Text("c")
	require.False(t, ok)
}
