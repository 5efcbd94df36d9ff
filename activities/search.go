package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// StepSearch returns what a run's search for better prompts needs now, and stores the
// prompts of the candidates that it wants evaluated, for the gateways. It changes nothing
// else, so it may be called at any time. At the end of the search it makes the winner a
// version of the prompts, unless the winner is the spec's own.
func (c *Coordinator) StepSearch(ctx context.Context, in StepSearchInput) (_ StepSearchResult, err error) {
	defer temporalError(&err)
	s, unlock, err := c.search(ctx, in.Run)
	if err != nil {
		return StepSearchResult{}, err
	}
	defer unlock()
	open, done := s.history.Open()
	out := StepSearchResult{Progress: ProgressOf(s.run.spec.Optimizer.Algorithm, s.history.Decisions(), s.history.Account())}
	if in.Stop && done == nil {
		stopped := s.history.Stopped()
		open, done = nil, &stopped
	}
	for _, r := range open {
		light := SearchRequest{ID: r.ID, Number: r.Number, Kind: r.Kind, Tasks: r.Tasks, Samples: r.Samples}
		if r.Kind == search.Evaluate {
			light.Rollouts = record.Minibatch
			if r.Split == search.SplitValidation {
				light.Rollouts = record.Validation
			}
			if light.Prompts, err = c.storeCandidate(ctx, s.run.spec, r.Candidate); err != nil {
				return StepSearchResult{}, err
			}
		}
		out.Requests = append(out.Requests, light)
	}
	if done != nil {
		out.End, err = c.endSearch(ctx, s, *done)
	}
	return out, err
}

// storeCandidate stores the prompts of a candidate and returns their digest.
func (c *Coordinator) storeCandidate(ctx context.Context, s spec.Spec, candidate search.Candidate) (string, error) {
	p, err := s.Prompts.WithTexts(candidate.Text)
	if err != nil {
		return "", invalid(fmt.Errorf("candidate %s: %w", candidate.ID, err))
	}
	digest, err := c.Blobs.Put(ctx, p.Encode())
	if err != nil {
		return "", fmt.Errorf("store the prompts of candidate %s: %w", candidate.ID, err)
	}
	return digest, nil
}

// endSearch puts the versions of the prompts on record.
func (c *Coordinator) endSearch(ctx context.Context, s *openSearch, done search.Done) (*SearchEnd, error) {
	run := s.run.run.Name
	seed := optimize.Seed(s.run.spec)
	digest, err := c.storeCandidate(ctx, s.run.spec, seed)
	if err != nil {
		return nil, err
	}
	err = c.Ledger.PutPromptVersion(ctx, record.PromptVersion{Run: run, Parent: -1, Prompts: digest, Candidate: seed.ID})
	if err != nil {
		return nil, finalConflict(err)
	}
	end := &SearchEnd{Reason: done.Reason, Purpose: done.Purpose, Prompts: digest, Score: done.Score, SeedScore: done.SeedScore}
	if done.Score == nil || done.Winner.ID == seed.ID {
		return end, nil
	}
	if end.Prompts, err = c.storeCandidate(ctx, s.run.spec, done.Winner); err != nil {
		return nil, err
	}
	end.Version, err = c.winningVersion(ctx, run, *end, done.Winner.ID)
	return end, err
}

// winningVersion puts the winner on record as a version, and returns its number. That is 1,
// unless the search ended with another winner before: a person may stop a search, and a
// workflow that was reset may be stopped later or not at all.
func (c *Coordinator) winningVersion(ctx context.Context, run string, end SearchEnd, candidate string) (int, error) {
	for number := 1; ; number++ {
		v, err := c.Ledger.PromptVersion(ctx, run, number)
		switch {
		case errors.Is(err, record.ErrNotFound):
			return number, finalConflict(c.Ledger.PutPromptVersion(ctx, record.PromptVersion{
				Run: run, Number: number, Prompts: end.Prompts, Candidate: candidate,
			}))
		case err != nil || v.Prompts == end.Prompts:
			return number, err
		}
	}
}

// AnswerSearch records the result of an evaluation that a search asked for. The first
// result stands.
func (c *Coordinator) AnswerSearch(ctx context.Context, in AnswerSearchInput) (err error) {
	defer temporalError(&err)
	return c.answer(ctx, in.Run, search.Answer{Request: in.Request, Results: in.Results}, "")
}

// answer records an answer. reflection is the key of the reply that it was read from.
func (c *Coordinator) answer(ctx context.Context, run string, a search.Answer, reflection string) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode the answer to request %s of run %s: %w", a.Request, run, err)
	}
	_, _, err = c.Ledger.PutSearchAnswer(ctx, record.SearchAnswer{Run: run, Request: a.Request, Answer: data, Reflection: reflection})
	return err
}

// openSearch is a search as far as this process has read its answers.
type openSearch struct {
	mu      sync.Mutex
	run     *cachedRun
	history *optimize.History
	// reflections are the keys of the replies that answers were read from, by request.
	reflections map[string]string
	read        int
}

// openSearches keeps the searches that are under way, so that a step reads only what is
// new. The zero value is ready.
type openSearches struct {
	mu   sync.Mutex
	last []*openSearch // the latest first
}

// maxOpenSearches bounds the memory of searches.
const maxOpenSearches = 4

// search returns a run's search, up to date and locked until unlock is called.
func (c *Coordinator) search(ctx context.Context, name string) (_ *openSearch, unlock func(), err error) {
	run, err := c.Runs.Run(ctx, name)
	if err != nil {
		return nil, nil, fmt.Errorf("read run %s: %w", name, err)
	}
	s, err := c.openSearch(ctx, run)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	if err := s.update(ctx, c.Ledger); err != nil {
		s.mu.Unlock()
		c.searches.forget(s)
		return nil, nil, fmt.Errorf("search of run %s: %w", name, err)
	}
	return s, s.mu.Unlock, nil
}

func (c *Coordinator) openSearch(ctx context.Context, run record.Run) (*openSearch, error) {
	c.searches.mu.Lock()
	defer c.searches.mu.Unlock()
	for i, s := range c.searches.last {
		if s.run.run.Name == run.Name && s.run.run.ExecutionID == run.ExecutionID {
			c.searches.last = slices.Insert(slices.Delete(c.searches.last, i, i+1), 0, s)
			return s, nil
		}
	}
	read, err := readRun(ctx, run.Name, c.Runs, c.Blobs)
	if err != nil {
		return nil, err
	}
	history, err := optimize.Begin(read.spec, run.Splits[record.Train].Count, run.Splits[record.Validation].Count)
	if err != nil {
		return nil, invalid(fmt.Errorf("search of run %s: %w", run.Name, err))
	}
	s := &openSearch{run: read, history: history, reflections: map[string]string{}}
	c.searches.last = slices.Insert(c.searches.last, 0, s)
	c.searches.last = c.searches.last[:min(len(c.searches.last), maxOpenSearches)]
	return s, nil
}

func (o *openSearches) forget(s *openSearch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = slices.DeleteFunc(o.last, func(other *openSearch) bool { return other == s })
}

// update takes the answers that are new.
func (s *openSearch) update(ctx context.Context, from Searches) error {
	answers, err := from.SearchAnswers(ctx, s.run.run.Name, s.read)
	if err != nil {
		return err
	}
	for _, one := range answers {
		var a search.Answer
		if err := json.Unmarshal(one.Answer, &a); err != nil {
			return fmt.Errorf("decode the answer to request %s: %w", one.Request, err)
		}
		if err := s.history.Take(a); err != nil {
			return invalid(fmt.Errorf("%w; was the run begun by another release?", err))
		}
		if one.Reflection != "" {
			s.reflections[one.Request] = one.Reflection
		}
		s.read = one.Number + 1
	}
	return nil
}

// ProgressOf returns how far a search has come, by what it decided and spent.
func ProgressOf(algorithm string, decisions []optimize.Decision, account search.Account) SearchProgress {
	p := SearchProgress{Spent: account.Spent}
	for _, d := range decisions {
		switch {
		case d.Verdict == search.Measured, d.Verdict == search.Accepted && algorithm == spec.AlgorithmGEPA:
			p.Candidates++
		case d.Verdict == search.Refused:
			p.Refused++
		}
		if d.Best {
			p.Best = d.Score
		}
		p.Proposals = max(p.Proposals, d.Proposal+1)
	}
	return p
}
