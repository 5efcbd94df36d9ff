// Package promptsearch reads the record of a search for better prompts: its candidates with
// their parents and scores, what was decided about each, and who reflected on what. Every
// view of a search reads it through this package.
//
// The store keeps the answers to a search's requests. The package makes the search of the
// run's spec anew, gives it these answers, and collects what it decides. So a view shows
// what the workflow saw, also while the search goes on. The package writes nothing.
package promptsearch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// ErrNone means that a run has no search.
var ErrNone = errors.New("the run searches for no prompts")

// Store is the part of a store that the package reads.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	SearchAnswers(ctx context.Context, run string, from int) ([]record.SearchAnswer, error)
	Reflection(ctx context.Context, key string) (record.Reflection, error)
	PromptVersions(ctx context.Context, run string) ([]record.PromptVersion, error)
	Promoted(ctx context.Context, run, policy string) (record.Promotion, error)
}

// Search is a search as far as it has come.
type Search struct {
	Run  record.Run
	Spec spec.Spec
	// Candidates are in the order in which they were first decided on. Number 0 is the
	// seed, once it is measured.
	Candidates []Candidate
	// Decisions are all that the search decided, in order.
	Decisions []optimize.Decision
	// Served are the requests that have answers, by number.
	Served []optimize.Served
	// Open are the requests without an answer. They are of the round under way.
	Open    []optimize.Request
	Account search.Account
	// Done is the end that the search itself came to; nil while it goes on, and if a person
	// ended it.
	Done *search.Done
	// Versions are those of the prompts, and Promoted is the number of the promoted one, -1
	// for none.
	Versions []record.PromptVersion
	Promoted int

	answered map[string]record.SearchAnswer
	byID     map[string]int
	// reflected are the places in Served of what a reflector was asked about a candidate.
	reflected map[string][]int
}

// Candidate is a candidate and all that is known of it.
type Candidate struct {
	search.Candidate
	Number int
	// Parents are the numbers of the candidates that it was made from.
	Parents []int
	// Proposal counts the proposals from 0; -1 for the seed.
	Proposal int
	Merge    bool
	// Verdict is the last one about it.
	Verdict search.Verdict
	// Before and After are the scores on the tasks where it was compared with its parents.
	Before, After []*float64
	// Score is the mean over the validation split; nil if it was not measured there. Scores
	// are by validation task, nil where there is none.
	Score  *float64
	Scores []*float64
	// Best says that it was the best on the whole validation split when it was measured.
	Best bool
	// Version is the version of the prompts that it became, -1 for none.
	Version int
	// Decided is when the last verdict fell.
	Decided time.Time
}

// Reader reads the search of one run again and again. It keeps what it has read, so that
// each time it reads only the new answers. It is safe for concurrent use.
type Reader struct {
	run string

	mu        sync.Mutex
	execution string // of the run that history is about
	history   *optimize.History
	answered  map[string]record.SearchAnswer
	read      int
}

// NewReader returns a reader of the search of a run.
func NewReader(run string) *Reader { return &Reader{run: run} }

// Read reads the search of a run. The error wraps ErrNone if its spec has no optimizer.
func Read(ctx context.Context, from Store, run string) (*Search, error) {
	return NewReader(run).Read(ctx, from)
}

// Read reads the search as it is now. It never changes a search that it returned before. The
// error wraps ErrNone if the run's spec has no optimizer.
func (r *Reader) Read(ctx context.Context, from Store) (*Search, error) {
	run := r.run
	row, err := from.Run(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", run, err)
	}
	s := &Search{Run: row, Promoted: -1, byID: map[string]int{}, reflected: map[string][]int{}}
	if s.Spec, err = spec.Stored(row.Spec); err != nil {
		return nil, fmt.Errorf("run %s: %w", run, err)
	}
	if s.Spec.Optimizer == nil {
		return nil, fmt.Errorf("run %s: %w", run, ErrNone)
	}
	if err := r.replay(ctx, from, s); err != nil {
		return nil, err
	}
	if s.Versions, err = from.PromptVersions(ctx, run); err != nil {
		return nil, err
	}
	for _, v := range s.Versions {
		if i, ok := s.byID[v.Candidate]; ok {
			s.Candidates[i].Version = v.Number
		}
	}
	switch p, err := from.Promoted(ctx, run, record.PromptsPolicy); {
	case err == nil:
		s.Promoted = p.Version
	case !errors.Is(err, record.ErrNotFound):
		return nil, err
	}
	return s, nil
}

// replay gives the search the answers that are new, and notes in s what it decided.
func (r *Reader) replay(ctx context.Context, from Store, s *Search) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.update(ctx, from, s); err != nil {
		r.history = nil // it can't be used any more
		return fmt.Errorf("search of run %s: %w", r.run, err)
	}
	s.answered = maps.Clone(r.answered)
	s.Decisions, s.Served, s.Account = r.history.Decisions(), r.history.Served(), r.history.Account()
	s.Open, s.Done = r.history.Open()
	for _, d := range s.Decisions {
		s.decided(d)
	}
	for i, one := range s.Served {
		s.scored(one)
		if one.Kind != search.Evaluate {
			s.reflected[one.Candidate.ID] = append(s.reflected[one.Candidate.ID], i)
		}
	}
	return nil
}

func (r *Reader) update(ctx context.Context, from Store, s *Search) error {
	if r.history == nil || r.execution != s.Run.ExecutionID {
		history, err := optimize.Begin(s.Spec, s.Run.Splits[record.Train].Count, s.Run.Splits[record.Validation].Count)
		if err != nil {
			return err
		}
		r.history, r.execution, r.answered, r.read = history, s.Run.ExecutionID, map[string]record.SearchAnswer{}, 0
	}
	answers, err := from.SearchAnswers(ctx, r.run, r.read)
	if err != nil {
		return err
	}
	for _, one := range answers {
		var a search.Answer
		if err := json.Unmarshal(one.Answer, &a); err != nil {
			return fmt.Errorf("decode the answer to request %s: %w", one.Request, err)
		}
		if err := r.history.Take(a); err != nil {
			return err
		}
		r.answered[one.Request], r.read = one, one.Number+1
	}
	return nil
}

// decided notes what a decision says of its candidate.
func (s *Search) decided(d optimize.Decision) {
	if d.Candidate == nil {
		return
	}
	i, ok := s.byID[d.Candidate.ID]
	if !ok {
		i = len(s.Candidates)
		s.byID[d.Candidate.ID] = i
		c := Candidate{Candidate: *d.Candidate, Number: i, Proposal: d.Proposal, Version: -1, Merge: d.Merge}
		for _, id := range d.Candidate.Parents {
			if parent, ok := s.byID[id]; ok {
				c.Parents = append(c.Parents, parent)
			}
		}
		s.Candidates = append(s.Candidates, c)
	}
	c := &s.Candidates[i]
	c.Verdict, c.Best = d.Verdict, c.Best || d.Best
	if d.After != nil {
		c.Before, c.After = d.Before, d.After
	}
	if d.Verdict == search.Measured || d.Verdict == search.Accepted && s.Spec.Optimizer.Algorithm == spec.AlgorithmGEPA {
		c.Score = d.Score
	}
	c.Decided = s.answered[s.Served[d.Request].ID].At
}

// scored notes the scores of an evaluation on the validation split.
func (s *Search) scored(r optimize.Served) {
	i, ok := s.byID[r.Candidate.ID]
	if !ok || r.Kind != search.Evaluate || r.Split != search.SplitValidation {
		return
	}
	c := &s.Candidates[i]
	if c.Scores == nil {
		c.Scores = make([]*float64, s.Run.Splits[record.Validation].Count)
	}
	for _, result := range r.Answer.Results {
		if result.Score != nil {
			c.Scores[result.Task] = result.Score
		}
	}
}

// Find returns the candidate of an id or the beginning of one.
func (s *Search) Find(id string) (Candidate, bool) {
	if i, ok := s.byID[id]; ok {
		return s.Candidates[i], true
	}
	for _, c := range s.Candidates {
		if len(id) >= 6 && len(c.ID) > len(id) && c.ID[:len(id)] == id {
			return c, true
		}
	}
	return Candidate{}, false
}

// Best returns the candidate with the highest mean on the validation split, the earliest of
// several.
func (s *Search) Best() (best Candidate, ok bool) {
	for _, c := range s.Candidates {
		if c.Score != nil && (!ok || *c.Score > *best.Score) {
			best, ok = c, true
		}
	}
	return best, ok
}

// Reflections returns the requests to the reflector, with their answers, that led to a
// candidate: the one for its text, and with APO the critique before it.
func (s *Search) Reflections(c Candidate) []optimize.Served {
	var out []optimize.Served
	if len(c.Candidate.Parents) == 0 {
		return nil
	}
	for _, i := range s.reflected[c.Candidate.Parents[0]] {
		r := s.Served[i]
		for _, name := range c.Changed {
			text, _ := c.Text(name)
			if r.Prompt == name && r.Kind != search.Critique && r.Answer.Text == text {
				if critique, ok := s.critique(r); ok {
					out = append(out, critique)
				}
				return append(out, r)
			}
		}
	}
	return out
}

// critique returns the critique that an edit follows.
func (s *Search) critique(edit optimize.Served) (optimize.Served, bool) {
	for _, i := range s.reflected[edit.Candidate.ID] {
		if r := s.Served[i]; r.Kind == search.Critique && r.Prompt == edit.Prompt && edit.Critique != "" && r.Answer.Text == edit.Critique {
			return r, true
		}
	}
	return optimize.Served{}, false
}

// Reply returns what the reflector replied to a request. The error wraps record.ErrNotFound
// if it was not asked.
func (s *Search) Reply(ctx context.Context, from Store, request string) (record.Reflection, error) {
	key := s.answered[request].Reflection
	if key == "" {
		return record.Reflection{}, fmt.Errorf("reply to request %s: %w", request, record.ErrNotFound)
	}
	return from.Reflection(ctx, key)
}

// Answered returns when a request was answered; zero if it was not.
func (s *Search) Answered(request string) time.Time { return s.answered[request].At }

// Progress returns how far the search has come.
func (s *Search) Progress() activities.SearchProgress {
	return activities.ProgressOf(s.Spec.Optimizer.Algorithm, s.Decisions, s.Account)
}

// Seed returns the candidate that the search starts from, also before it is measured.
func (s *Search) Seed() Candidate {
	if len(s.Candidates) > 0 {
		return s.Candidates[0]
	}
	return Candidate{Candidate: optimize.Seed(s.Spec), Proposal: -1}
}

// Version returns the candidate that is a version of the prompts. Version 0 is the seed,
// which is promoted before the versions are on record.
func (s *Search) Version(number int) (Candidate, bool) {
	for _, v := range s.Versions {
		if v.Number == number {
			return s.Find(v.Candidate)
		}
	}
	return s.Seed(), number == 0
}

// Prompts returns what attempts with a candidate are served.
func (s *Search) Prompts(c Candidate) (prompts.Set, error) {
	return s.Spec.Prompts.WithTexts(c.Text)
}

// PolicyOf returns the policy whose versions a run makes, compares and promotes: that of the
// prompts if the run searches for better ones. A spec that can't be read, such as that of a
// run that was refused, is no search.
func PolicyOf(run record.Run) string {
	if s, err := spec.Stored(run.Spec); err == nil && s.Optimizer != nil {
		return record.PromptsPolicy
	}
	return model.DefaultPolicy
}
