package search_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// recorded are the draws of a reference program, in order: n and a number below it, or 0
// and a fraction. A search has to ask for the same draws.
type recorded struct {
	t     *testing.T
	draws [][2]float64
	used  int
}

// next returns a draw. A search begins the proposal after the last one, for which there are
// no draws: over says so.
func (r *recorded) next(number uint64) (draw [2]float64, ok bool) {
	require.Equal(r.t, r.used, int(number), "a draw is left out or made twice")
	if r.used++; r.over() {
		return draw, false
	}
	return r.draws[number], true
}

func (r *recorded) over() bool { return r.used > len(r.draws) }

func (r *recorded) Below(number uint64, n int) int {
	draw, ok := r.next(number)
	if ok {
		require.Equal(r.t, int(draw[0]), n, "draw %d is from another number of alternatives", number)
	}
	return int(draw[1])
}

func (r *recorded) Fraction(number uint64) float64 {
	draw, _ := r.next(number)
	require.Zero(r.t, draw[0], "draw %d is no fraction in the reference program", number)
	return draw[1]
}

// event is what a reference program did: it evaluated, asked for a text, or decided.
type event struct {
	// Evaluate are the texts of a candidate, Reflect those of the one to improve.
	Evaluate, Reflect texts
	Split             string
	Tasks             []int
	Eighths           []float64
	Prompt, Reply     string

	Decide     string
	Merge      bool
	Archive    []texts
	Parents    [][]int
	Fronts     [][]int
	NextPrompt []int `json:"next_prompt"`

	Critique, Edit string
	Variant        int
	Shown          []int
	After          string
	Beam           []string
	Best           string
	Score          float64
}

// texts are those of a candidate in the order of the prompts. One may stand alone.
type texts []string

func (x *texts) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*x = texts{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(x))
}

func of(c search.Candidate) texts {
	var out texts
	for _, p := range c.Prompts {
		out = append(out, p.Text)
	}
	return out
}

// results are those of an event that evaluates.
func (e event) results() []search.Result {
	var out []search.Result
	for i, task := range e.Tasks {
		score := e.Eighths[i] / 8
		out = append(out, search.Result{Task: task, Score: &score})
	}
	return out
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, into))
}

// TestGEPADecidesAsItsPackage replays what testdata/gepa_trace.py recorded: with the same
// draws, scores and replies, GEPA asks for the same evaluations and texts in the same order,
// accepts the same candidates, and has the same fronts after each proposal.
func TestGEPADecidesAsItsPackage(t *testing.T) {
	t.Parallel()
	var file struct {
		GEPA  string
		Cases []struct {
			Seed                         int
			Prompts                      []search.Prompt
			Train, Validation, Minibatch int
			Merge                        bool
			Draws                        [][2]float64
			Events                       []event
			Best                         texts
		}
	}
	read(t, "testdata/gepa.json", &file)
	require.Equal(t, "0.1.4", file.GEPA)
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		t.Run(fmt.Sprint("seed ", c.Seed), func(t *testing.T) {
			t.Parallel()
			g := newGEPA(t, search.Settings{
				Prompts: c.Prompts, Train: c.Train, Validation: c.Validation,
				Budget: search.Budget{Minibatch: 1e6, Validation: 1e6, Reflections: 1e6},
			}, search.GEPASettings{Minibatch: c.Minibatch, Merge: c.Merge})
			draws := &recorded{t: t, draws: c.Draws}
			g.Use(draws)
			replayGEPA(t, g, c.Events, draws)
			require.GreaterOrEqual(t, draws.used, len(c.Draws), "the package made more draws")
			require.Equal(t, c.Best, of(g.Archive[best(g)].Candidate))
		})
	}
}

// best returns the number of the candidate that would win now.
func best(g *search.GEPA) int {
	best := 0
	for i, e := range g.Archive {
		if e.Mean > g.Archive[best].Mean {
			best = i
		}
	}
	return best
}

func replayGEPA(t *testing.T, g *search.GEPA, events []event, draws *recorded) {
	var decisions []search.Decision
	var last event
	for i, e := range events {
		if e.Decide != "" {
			require.Len(t, decisions, 1, "event %d", i)
			require.Equal(t, e.Decide, string(decisions[0].Verdict), "event %d", i)
			require.Equal(t, e.Merge, decisions[0].Merge, "event %d", i)
			decisions = nil
			if e.Archive != nil {
				last.Archive, last.Parents = e.Archive, e.Parents
			}
			if e.Fronts != nil {
				last.Fronts = e.Fronts
			}
			if e.NextPrompt != nil {
				last.NextPrompt = e.NextPrompt
			}
			requireArchive(t, last, g, i)
			continue
		}
		require.False(t, draws.over(), "event %d: the package made fewer draws", i)
		r := only(t, g)
		a := search.Answer{Request: r.ID}
		if e.Reflect != nil {
			require.Equal(t, search.Reflect, r.Kind, "event %d", i)
			require.Equal(t, e.Reflect, of(r.Candidate), "event %d", i)
			require.Equal(t, e.Prompt, r.Prompt, "event %d", i)
			if a.Text = e.Reply; a.Text == "" {
				a.Refusal = search.RefusedFailed
			}
		} else {
			require.Equal(t, search.Evaluate, r.Kind, "event %d", i)
			require.Equal(t, e.Evaluate, of(r.Candidate), "event %d", i)
			require.Equal(t, e.Split, r.Split, "event %d", i)
			require.Equal(t, e.Tasks, r.Tasks, "event %d", i)
			a.Results = e.results()
		}
		var err error
		decisions, err = g.Answer(a)
		require.NoError(t, err)
		if i == 0 {
			require.Equal(t, search.Measured, decisions[0].Verdict)
		}
	}
}

func requireArchive(t *testing.T, want event, g *search.GEPA, i int) {
	t.Helper()
	require.Len(t, g.Archive, len(want.Archive), "event %d", i)
	fronts := make([][]int, len(want.Fronts))
	for task := range fronts {
		highest := -1.0
		for number, e := range g.Archive {
			if score := *e.Scores[task]; score > highest {
				highest, fronts[task] = score, []int{number}
			} else if score == highest {
				fronts[task] = append(fronts[task], number)
			}
		}
	}
	require.Equal(t, want.Fronts, fronts, "event %d", i)
	for number, e := range g.Archive {
		require.Equal(t, want.Archive[number], of(e.Candidate), "event %d", i)
		require.True(t, slices.Equal(want.Parents[number], e.Parents), "event %d", i)
		require.Equal(t, want.NextPrompt[number], e.NextPrompt, "event %d", i)
	}
}

// TestAPODecidesAsAgentLightning replays what testdata/apo_trace.py recorded: with the same
// draws, rewards and replies, APO makes the same proposals from the same attempts, keeps the
// same beams and has the same best prompt after each round. What Agent Lightning does one
// after the other, the search asks for at once.
func TestAPODecidesAsAgentLightning(t *testing.T) {
	t.Parallel()
	var file struct {
		AgentLightning string
		Cases          []struct {
			Seed, Train, Validation, Beam, Branch, Rounds int
			GradientBatch                                 int `json:"gradient_batch"`
			ValidationBatch                               int `json:"validation_batch"`
			Draws                                         [][2]float64
			Events                                        []event
			Best                                          string
		}
	}
	read(t, "testdata/apo.json", &file)
	require.Equal(t, "0.3.0", file.AgentLightning)
	require.NotEmpty(t, file.Cases)
	for _, c := range file.Cases {
		t.Run(fmt.Sprint("seed ", c.Seed), func(t *testing.T) {
			t.Parallel()
			a := newAPO(t, search.Settings{
				Prompts: []search.Prompt{{Name: "prompt", Text: "t0"}}, Train: c.Train, Validation: c.Validation,
				Budget: search.Budget{Minibatch: 1e6, Validation: 1e6, Reflections: 1e6},
			}, search.APOSettings{
				Beam: c.Beam, Branch: c.Branch, Rounds: c.Rounds, GradientBatch: c.GradientBatch, ValidationBatch: c.ValidationBatch,
			})
			draws := &recorded{t: t, draws: c.Draws}
			a.Use(draws)
			replayAPO(t, a, c.Events)
			require.Equal(t, len(c.Draws), draws.used)
			done := a.Next().Done
			require.Equal(t, search.EndRounds, done.Reason)
			require.Equal(t, texts{c.Best}, of(done.Winner))
		})
	}
}

func replayAPO(t *testing.T, a *search.APO, events []event) {
	measured := map[string]bool{}
	var replied string // the critique that the next edit follows
	for i := 0; i < len(events); i++ {
		switch e := events[i]; {
		case e.Beam != nil:
			requireBeam(t, e, a, i)
			// The leader is measured next, unless it was before.
			if leader := events[i+1]; measured[leader.Evaluate[0]] {
				i++
			}
		case e.Best != "":
			require.Equal(t, texts{e.Best}, of(a.Best.Candidate), "event %d", i)
			require.InDelta(t, e.Score, *a.Best.Score, 1e-12, "event %d", i)
		case e.Evaluate != nil:
			r := open(t, a, search.Evaluate, func(r search.Request) bool {
				return slices.Equal(of(r.Candidate), e.Evaluate) && slices.Equal(r.Tasks, e.Tasks) && r.Split == e.Split
			}, i)
			if i == 0 || events[i-1].Beam != nil {
				measured[e.Evaluate[0]] = true
			}
			answer(t, a, search.Answer{Request: r.ID, Results: e.results()})
		case e.Critique != "":
			r := open(t, a, search.Critique, func(r search.Request) bool {
				var shown []int
				for _, result := range r.Shown {
					shown = append(shown, result.Task)
				}
				return slices.Equal(of(r.Candidate), texts{e.Critique}) && slices.Equal(shown, e.Shown) && r.Variant == e.Variant
			}, i)
			replied = e.Reply
			answer(t, a, search.Answer{Request: r.ID, Text: replied})
		case e.Edit != "":
			require.Equal(t, replied, e.After)
			r := open(t, a, search.Edit, func(r search.Request) bool {
				return slices.Equal(of(r.Candidate), texts{e.Edit}) && r.Critique == e.After && r.Variant == e.Variant
			}, i)
			reply := search.Answer{Request: r.ID, Text: e.Reply}
			if e.Reply == "" {
				reply.Refusal = search.RefusedEmpty
			}
			answer(t, a, reply)
		}
	}
}

// open returns the first open request of a kind that fits.
func open(t *testing.T, s search.Search, kind search.Kind, fits func(search.Request) bool, i int) search.Request {
	t.Helper()
	requests := s.Next().Requests
	at := slices.IndexFunc(requests, func(r search.Request) bool { return r.Kind == kind && fits(r) })
	require.GreaterOrEqual(t, at, 0, "event %d is not among what the search needs: %+v", i, requests)
	return requests[at]
}

func answer(t *testing.T, s search.Search, a search.Answer) {
	t.Helper()
	_, err := s.Answer(a)
	require.NoError(t, err)
}

func requireBeam(t *testing.T, want event, a *search.APO, i int) {
	t.Helper()
	var beam []string
	for place, m := range a.Beam {
		beam = append(beam, m.Candidate.Prompts[0].Text)
		require.InDelta(t, want.Eighths[place]/8, *m.Score, 1e-12, "event %d", i)
	}
	require.Equal(t, want.Beam, beam, "event %d", i)
}
