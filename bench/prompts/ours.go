package main

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/prompts/search"
)

// name is what the only prompt is called.
const name = "classifier"

// shownBytes bounds what a reflector is shown. No question here comes near.
const shownBytes = 1 << 20

// retries is how often a rollout that failed is tried again. Its task has no score if it
// fails then too.
const retries = 2

// settings are those that all searches of a table share.
type settings struct {
	beam, branch, rounds, gradientBatch, validationBatch int
	// budget is in rollouts.
	budget int
	// failures is the share of rollouts that fail.
	failures float64
}

// whole returns the most rollouts that APO can make.
func (s settings) whole() int {
	proposals := s.beam * s.branch
	round := proposals*s.gradientBatch + (s.beam+proposals)*s.validationBatch + validationItems
	fewer := (s.beam - 1) * s.validationBatch // the first beam is the seed alone
	return validationItems + s.rounds*round - fewer
}

// standing is the best prompt of a search after a number of rollouts.
type standing struct {
	Rollouts int    `json:"rollouts"`
	Prompt   string `json:"prompt"`
}

// apo returns our APO. Attempts that critiques are made from are what the settings say,
// and the rest of the budget is for validation.
func (s settings) apo(w *world) (search.Search, error) {
	proposals := s.rounds * s.beam * s.branch
	minibatch := proposals * s.gradientBatch
	return search.NewAPO(s.search(w, search.Budget{Minibatch: minibatch, Validation: s.budget - minibatch, Reflections: 2 * proposals}),
		search.APOSettings{Beam: s.beam, Branch: s.branch, Rounds: s.rounds, GradientBatch: s.gradientBatch, ValidationBatch: s.validationBatch})
}

// gepa returns our GEPA. A quarter of the budget is for minibatches.
func (s settings) gepa(w *world) (search.Search, error) {
	minibatch := s.budget / 4
	return search.NewGEPA(s.search(w, search.Budget{Minibatch: minibatch, Validation: s.budget - minibatch, Reflections: s.budget}), search.GEPASettings{})
}

func (s settings) search(w *world, budget search.Budget) search.Settings {
	return search.Settings{
		Prompts: []search.Prompt{{Name: name, Text: w.prompt}}, Train: trainItems, Validation: validationItems, Budget: budget, Seed: w.seed,
	}
}

// driver serves what a search of ours needs.
type driver struct {
	rollouts *rollouts
	reflect  reflector.Reflector
	traces   map[string]search.Trace
	// asked counts equal questions: another try gets another reply.
	asked map[reflector.Question]int
}

// drive goes through a search and returns how its best prompt changed.
func drive(ctx context.Context, s search.Search, r *rollouts, from reflector.Reflector) ([]standing, error) {
	d := &driver{rollouts: r, reflect: from, traces: map[string]search.Trace{}, asked: map[reflector.Question]int{}}
	h := optimize.NewHistory(s)
	history := []standing{{0, r.world.prompt}}
	for {
		open, done := h.Open()
		if done != nil {
			return history, nil
		}
		for _, request := range open {
			a, err := d.answer(ctx, request.Request)
			if err != nil {
				return nil, err
			}
			if err := h.Take(a); err != nil {
				return nil, err
			}
		}
		best, _ := h.Stopped().Winner.Text(name)
		history = append(history, standing{r.total, best})
	}
}

func (d *driver) answer(ctx context.Context, r search.Request) (search.Answer, error) {
	a := search.Answer{Request: r.ID}
	if r.Kind == search.Evaluate {
		text, _ := r.Candidate.Text(name)
		for _, task := range r.Tasks {
			result, again := d.evaluate(text, r.Split, task)
			a.Results, a.Retries = append(a.Results, result), a.Retries+again
		}
		return a, nil
	}
	var traces []search.Trace
	for _, shown := range r.Shown {
		for _, one := range shown.Attempts {
			traces = append(traces, d.traces[one.Trace])
		}
	}
	rendered, err := search.Render(r, nil, traces, shownBytes)
	if err != nil {
		return a, err
	}
	q := reflector.Question{System: rendered.System, User: rendered.User}
	try := d.asked[q]
	d.asked[q]++
	q.Try = try
	reply, err := d.reflect.Reflect(ctx, q)
	if err != nil {
		return a, err
	}
	read := search.Reply{Text: reply.Text, CutOff: reply.CutOff}
	if r.Kind == search.Critique {
		a.Text, a.Refusal = search.ReadCritique(read)
	} else {
		a.Text, a.Refusal = search.ReadText(read, search.Rules{})
	}
	return a, nil
}

// evaluate lets the model try a task, again if it fails.
func (d *driver) evaluate(text, split string, task int) (result search.Result, again int) {
	result = search.Result{Task: task}
	for {
		did := d.rollouts.attempt(text, split, task)
		if !did.Failed {
			trace := fmt.Sprint(d.rollouts.total)
			d.traces[trace] = search.Trace{Input: did.Input, Output: did.Answer, Reward: &did.Reward}
			result.Score, result.Attempts = &did.Reward, []search.Attempt{{Trace: trace, Reward: &did.Reward}}
			return result, again
		}
		if again == retries {
			return result, again
		}
		again++
	}
}
