package search_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// round answers everything of a round's proposals, such that the text of each is the number
// of its request.
func round(t *testing.T, a *search.APO) []search.Request {
	t.Helper()
	var edits []search.Request
	for texts := 0; ; {
		open := a.Next().Requests
		if open[0].Split == search.SplitValidation {
			return edits
		}
		for _, r := range open {
			switch r.Kind {
			case search.Evaluate:
				give(t, a, r, 0.5)
			case search.Critique:
				say(t, a, r, "critique of "+r.ID)
			default:
				require.Equal(t, "critique of "+r.ID[:len(r.ID)-len("edit")]+"critique", r.Critique)
				edits = append(edits, r)
				texts++
				say(t, a, r, fmt.Sprintf("%s/%d", r.Candidate.Prompts[0].Text, texts))
			}
		}
	}
}

func TestARoundMakesABranchOfProposalsFromEachParent(t *testing.T) {
	t.Parallel()
	s := settings(1)
	s.Budget = search.Budget{Minibatch: 1000, Validation: 1000, Reflections: 1000}
	a := newAPO(t, s, search.APOSettings{})
	give(t, a, only(t, a), 0.5)
	open := a.Next().Requests
	require.Len(t, open, 16)
	for _, r := range open {
		require.Len(t, r.Tasks, 4)
		require.Equal(t, search.SplitTrain, r.Split)
	}
	require.Len(t, round(t, a), 16)
	require.Len(t, a.Next().Requests, 17, "the seed and the proposals are compared")
}

func TestTheBeamKeepsTheBestAndItsFirstIsMeasured(t *testing.T) {
	t.Parallel()
	s := settings(1)
	s.Budget = search.Budget{Minibatch: 1000, Validation: 1000, Reflections: 1000}
	a := newAPO(t, s, search.APOSettings{Beam: 2, Branch: 2, Rounds: 1, ValidationBatch: 3})
	give(t, a, only(t, a), 0.5)
	round(t, a)
	scores := map[string]float64{"text0": 0.1, "text0/1": 0.3, "text0/2": 0.9, "text0/3": 0.6, "text0/4": 0.2}
	var decisions []search.Decision
	for _, r := range a.Next().Requests {
		require.Len(t, r.Tasks, 3)
		decisions = append(decisions, give(t, a, r, scores[r.Candidate.Prompts[0].Text])...)
	}
	verdicts := map[string]search.Verdict{}
	for _, d := range decisions {
		verdicts[d.Candidate.Prompts[0].Text] = d.Verdict
	}
	require.Equal(t, map[string]search.Verdict{
		"text0/1": search.Rejected, "text0/2": search.Accepted, "text0/3": search.Accepted, "text0/4": search.Rejected,
	}, verdicts)
	leader := only(t, a)
	require.Equal(t, "text0/2", leader.Candidate.Prompts[0].Text)
	require.Len(t, leader.Tasks, 8)
	give(t, a, leader, 0.4) // it was lucky on the batch
	done := a.Next().Done
	require.Equal(t, search.EndRounds, done.Reason)
	require.Equal(t, "text0", done.Winner.Prompts[0].Text)
}

func TestACandidateThatMissesATaskIsNotComparedAsIfItWereWhole(t *testing.T) {
	t.Parallel()
	s := settings(1)
	s.Budget = search.Budget{Minibatch: 1000, Validation: 1000, Reflections: 1000}
	a := newAPO(t, s, search.APOSettings{Beam: 2, Branch: 1, Rounds: 1, ValidationBatch: 3})
	give(t, a, only(t, a), 0.5)
	round(t, a)
	missing := 0
	verdicts := map[string]search.Verdict{}
	for try := range 2 {
		open := a.Next().Requests
		require.Len(t, open, []int{3, 3}[try])
		for _, r := range open {
			var scores []float64
			if first := try == 0; r.Candidate.Prompts[0].Text == "text0/1" {
				missing++
				scores = map[bool][]float64{true: {1, -1, -1}, false: {-1, -1}}[first]
			} else {
				scores = map[bool][]float64{true: {0.25, 0.25, -1}, false: {-1}}[first] // all miss the third task
			}
			require.Len(t, r.Tasks, len(scores))
			for _, d := range give(t, a, r, scores...) {
				verdicts[d.Candidate.Prompts[0].Text] = d.Verdict
			}
		}
	}
	require.Equal(t, 2, missing)
	require.Equal(t, map[string]search.Verdict{"text0/1": search.Unmeasured, "text0/2": search.Accepted}, verdicts)
	require.Len(t, a.Beam, 2)
	for _, m := range a.Beam {
		require.NotEqual(t, "text0/1", m.Candidate.Prompts[0].Text)
		require.InDelta(t, 0.25, *m.Score, 0)
	}
}

func TestAttemptsWithoutAScoreAreNotShown(t *testing.T) {
	t.Parallel()
	a := newAPO(t, settings(1), search.APOSettings{Beam: 1, Branch: 2})
	give(t, a, only(t, a), 0.5)
	open := a.Next().Requests
	give(t, a, open[0], 0.5, -1)
	d := give(t, a, open[1], -1)
	require.Equal(t, search.Unmeasured, d[0].Verdict)
	critique := only(t, a)
	require.Len(t, critique.Shown, 2)
	for _, r := range critique.Shown {
		require.NotNil(t, r.Score)
	}
}

func TestALeaderIsMeasuredOnceAndWinsOnlyIfItIsBetter(t *testing.T) {
	t.Parallel()
	s := settings(1)
	s.Budget = search.Budget{Minibatch: 1000, Validation: 1000, Reflections: 1000}
	a := newAPO(t, s, search.APOSettings{Beam: 1, Branch: 1, Rounds: 2, ValidationBatch: 3})
	give(t, a, only(t, a), 0.5)
	for r := range 2 {
		round(t, a)
		for _, one := range a.Next().Requests {
			give(t, a, one, map[bool]float64{true: 1, false: 0}[one.Candidate.Prompts[0].Text == "text0/1"])
		}
		if r == 0 {
			give(t, a, only(t, a), 0.5)
		}
	}
	done := a.Next().Done
	require.NotNil(t, done, "the leader is measured again")
	require.Equal(t, "text0", done.Winner.Prompts[0].Text, "a tie has replaced the seed")
}

func TestEqualProposalsOfARoundAreComparedOnce(t *testing.T) {
	t.Parallel()
	a := newAPO(t, settings(1), search.APOSettings{Beam: 1, Branch: 3})
	give(t, a, only(t, a), 0.5)
	var decisions []search.Decision
	for range 3 {
		for _, r := range a.Next().Requests {
			if r.Kind == search.Evaluate {
				decisions = append(decisions, give(t, a, r, 0.5)...)
			} else {
				decisions = append(decisions, say(t, a, r, "the same")...)
			}
		}
	}
	require.Len(t, decisions, 2)
	require.Equal(t, 2, a.Account().Refusals[search.RefusedKnown])
	require.Len(t, a.Next().Requests, 2)
}

func TestARoundHasAsManyProposalsAsTheBudgetCovers(t *testing.T) {
	t.Parallel()
	s := settings(1)
	for _, c := range []struct {
		budget search.Budget
		want   int
	}{
		{search.Budget{Minibatch: 1000, Validation: 1000, Reflections: 11}, 5},
		{search.Budget{Minibatch: 27, Validation: 1000, Reflections: 100}, 6},
		// The seed's validation 8, the seed in the comparison 8, the leader 8, three more.
		{search.Budget{Minibatch: 1000, Validation: 24 + 24 + 7, Reflections: 100}, 3},
	} {
		s.Budget = c.budget
		a := newAPO(t, s, search.APOSettings{})
		give(t, a, only(t, a), 0.5)
		open := a.Next().Requests
		require.Len(t, open, c.want)
		require.Len(t, round(t, a), c.want)
	}
}
