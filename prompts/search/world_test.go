package search_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/search"
)

// world answers requests with scores and texts that depend on the request alone.
type world struct {
	seed int
	// missing, refused and retried are how many of a hundred results, texts and
	// evaluations are.
	missing, refused, retried int
	// broken are validation tasks that never have a score.
	broken []int
}

// roll returns a number below n that depends on the parts.
func (w world) roll(n int, parts ...any) int {
	h := fnv.New64a()
	fmt.Fprint(h, w.seed, parts)
	return int(h.Sum64() >> 20 % uint64(n))
}

// level is the quality of a text for a task, from 0 to 8. Each edit that a text went
// through moves it a little.
func (w world) level(text, split string, task int) int {
	edits := strings.Split(text, "/")
	level := w.roll(5, edits[0], split, task)
	for i := range edits[1:] {
		edit := strings.Join(edits[:i+2], "/")
		if w.roll(2, "moves", edit, split, task) == 0 {
			level += w.roll(4, "by", edit, split, task) - 1
		}
	}
	return min(8, max(0, level))
}

func (w world) score(c search.Candidate, split string, task int) float64 {
	total := 0
	for _, p := range c.Prompts {
		total += w.level(p.Text, split, task)
	}
	return float64(total) / float64(8*len(c.Prompts))
}

func (w world) answer(r search.Request) search.Answer {
	a := search.Answer{Request: r.ID}
	if r.Kind != search.Evaluate {
		if w.roll(100, "refused", r.ID) < w.refused {
			a.Refusal = search.Refusals()[w.roll(10, "why", r.ID)]
			return a
		}
		text, _ := r.Candidate.Text(r.Prompt)
		a.Text = fmt.Sprintf("%s/%d", text, w.roll(1000, "text", r.ID))
		if r.Kind == search.Critique {
			a.Text = "critique of " + r.ID
		}
		return a
	}
	for i, task := range r.Tasks {
		result := search.Result{Task: task}
		lost := w.roll(100, "missing", r.ID, i) < w.missing || r.Split == search.SplitValidation && slices.Contains(w.broken, task)
		if !lost {
			score := w.score(r.Candidate, r.Split, task)
			result.Score = &score
			for sample := range r.Samples {
				result.Attempts = append(result.Attempts, search.Attempt{Trace: fmt.Sprint(r.ID, task, sample), Reward: &score})
			}
		}
		a.Results = append(a.Results, result)
	}
	if w.roll(100, "retried", r.ID) < w.retried {
		a.Retries = 1
	}
	return a
}

// history is all that a search showed.
type history struct {
	Steps     [][]string
	Decisions []search.Decision
	Done      search.Done
	Account   search.Account
	Requests  []search.Request
	States    []string
}

// driving changes how a search is driven, which must not change the search.
type driving struct {
	// encoded says that the search is encoded and decoded before each answer.
	encoded bool
	// order permutes the answers of each step. Nil keeps them.
	order *rand.Rand
	draws search.Draws
	// stateless leaves the states out of the history: they grow long.
	stateless bool
}

const maxSteps = 100_000

func drive(t require.TestingT, s search.Search, w world, how driving) history {
	var h history
	if how.draws != nil {
		s.Use(how.draws)
	}
	for range maxSteps {
		step := s.Next()
		if step.Done != nil {
			require.Empty(t, step.Requests)
			h.Done, h.Account = *step.Done, s.Account()
			return h
		}
		require.NotEmpty(t, step.Requests, "the search is stuck")
		var ids []string
		for _, r := range step.Requests {
			ids = append(ids, r.ID)
		}
		h.Steps, h.Requests = append(h.Steps, ids), append(h.Requests, step.Requests...)
		if how.order != nil {
			how.order.Shuffle(len(step.Requests), func(i, j int) {
				step.Requests[i], step.Requests[j] = step.Requests[j], step.Requests[i]
			})
		}
		for _, r := range step.Requests {
			if how.encoded {
				state, err := search.Encode(s)
				require.NoError(t, err)
				s, err = search.Decode(state)
				require.NoError(t, err)
				if how.draws != nil {
					s.Use(how.draws)
				}
			}
			decisions, err := s.Answer(w.answer(r))
			require.NoError(t, err)
			h.Decisions = append(h.Decisions, decisions...)
		}
		if how.stateless {
			continue
		}
		state, err := search.Encode(s)
		require.NoError(t, err)
		h.States = append(h.States, string(state))
	}
	require.Fail(t, "the search does not end")
	return h
}

// sorted returns the decisions in the order of their proposals: within a step, decisions
// come in the order of the answers.
func sorted(decisions []search.Decision) []string {
	var out []string
	for _, d := range decisions {
		text, err := json.Marshal(d)
		if err != nil {
			panic(err) // a decision is plain data
		}
		out = append(out, string(text))
	}
	slices.Sort(out)
	return out
}

func settings(prompts int) search.Settings {
	s := search.Settings{
		Train: 9, Validation: 8, Seed: 7,
		Budget: search.Budget{Minibatch: 150, Validation: 200, Reflections: 25},
	}
	for i := range prompts {
		s.Prompts = append(s.Prompts, search.Prompt{Name: fmt.Sprintf("prompt%d", i), Text: fmt.Sprintf("text%d", i)})
	}
	return s
}

func newGEPA(t require.TestingT, s search.Settings, o search.GEPASettings) *search.GEPA {
	g, err := search.NewGEPA(s, o)
	require.NoError(t, err)
	return g
}

func newAPO(t require.TestingT, s search.Settings, o search.APOSettings) *search.APO {
	a, err := search.NewAPO(s, o)
	require.NoError(t, err)
	return a
}

// kinds are searches of every kind, by name.
func kinds(t *testing.T) map[string]func(search.Settings) search.Search {
	return map[string]func(search.Settings) search.Search{
		"gepa":           func(s search.Settings) search.Search { return newGEPA(t, s, search.GEPASettings{}) },
		"gepa and merge": func(s search.Settings) search.Search { return newGEPA(t, s, search.GEPASettings{Merge: true}) },
		"apo": func(s search.Settings) search.Search {
			return newAPO(t, s, search.APOSettings{Beam: 3, Branch: 2, Rounds: 4, ValidationBatch: 5})
		},
	}
}
