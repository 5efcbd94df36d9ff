package activities

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/credit/judge"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/prompts/optimize"
	"github.com/fulgurite/fulgurite/prompts/reflector"
	"github.com/fulgurite/fulgurite/prompts/rewrite"
	"github.com/fulgurite/fulgurite/prompts/search"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// AskReflector lets the spec's reflector answer a request of a search, and records the
// answer. A reply is asked for once: it is stored under all that the reflector was told,
// and every later execution, in this run or another, reads the stored one. If the reflector
// can't be reached, that is an error that is tried again. A reply that can't be used is an
// answer with the reason.
func (c *Coordinator) AskReflector(ctx context.Context, in AskReflectorInput) (err error) {
	defer temporalError(&err)
	asked, r, err := c.question(ctx, in)
	if err != nil || asked == nil {
		return err
	}
	o := asked.spec.Optimizer
	if asked.refusal != "" {
		return c.answer(ctx, in.Run, search.Answer{Request: in.Request, Refusal: asked.refusal}, "")
	}
	from, err := c.Reflectors(o.Reflector)
	if err != nil {
		return err
	}
	defer from.Close()
	key, q := asked.unused(from)
	stored, failed, err := c.reflect(ctx, from, key, q, in)
	if err != nil {
		return err
	}
	a := search.Answer{Request: in.Request, Refusal: search.RefusedFailed}
	if !failed {
		a.Text, a.Refusal = asked.read(r, stored.Reply)
	}
	return c.answer(ctx, in.Run, a, stored.Key)
}

// reflect returns the reply that is stored under a key, or asks for it and stores it.
// failed means that the reflector gives none.
func (c *Coordinator) reflect(ctx context.Context, from reflector.Reflector, key string, q reflector.Question, in AskReflectorInput) (_ record.Reflection, failed bool, err error) {
	stored, err := c.Ledger.Reflection(ctx, key)
	if !errors.Is(err, record.ErrNotFound) {
		return stored, false, err
	}
	alive := beat{progress: func() any { return nil }} // the reflector's own limit or Temporal's ends it
	stored, err = beating(ctx, alive, func(ctx context.Context) (record.Reflection, error) {
		reply, err := from.Reflect(ctx, q)
		if err != nil {
			return record.Reflection{}, err
		}
		return c.keep(ctx, record.Reflection{Key: key, Run: in.Run, Request: in.Request, Reply: record.ReflectionReply{
			Model: reply.Model, Text: reply.Text, CutOff: reply.CutOff, InputTokens: reply.Usage.Input, OutputTokens: reply.Usage.Output,
		}})
	})
	switch {
	case errors.Is(err, reflector.ErrFailed):
		return record.Reflection{}, true, nil
	case reflector.Final(err):
		return record.Reflection{}, false, invalid(fmt.Errorf("request %s of run %s: %w; mend the reflector and retry the run: what it replied is kept", in.Request, in.Run, err))
	case err != nil:
		return record.Reflection{}, false, fmt.Errorf("ask the reflector about request %s of run %s: %w", in.Request, in.Run, err)
	}
	return stored, false, nil
}

// read returns the text in a reply, or why there is none.
func (q *question) read(r optimize.Request, stored record.ReflectionReply) (text string, why search.Refusal) {
	reply := search.Reply{Text: stored.Text, CutOff: stored.CutOff}
	if r.Kind == search.Critique {
		text, why = search.ReadCritique(reply)
	} else {
		text, why = search.ReadText(reply, q.rules(r))
	}
	if why != "" {
		text = ""
	}
	return text, why
}

// TryReflector asks the spec's reflector once, about attempts of a trial, for a new text of
// the first prompt. It stores the reply and nothing else.
func (c *Coordinator) TryReflector(ctx context.Context, in TryReflectorInput) (_ TryReflectorResult, err error) {
	defer temporalError(&err)
	run, err := readRun(ctx, in.Run, c.Runs, c.Blobs)
	if err != nil {
		return TryReflectorResult{}, err
	}
	seed := optimize.Seed(run.spec)
	r := optimize.Request{Request: search.Request{ID: "try", Kind: search.Reflect, Candidate: seed, Prompt: seed.Prompts[0].Name}}
	if run.spec.Optimizer.Algorithm == spec.AlgorithmAPO {
		r.Kind = search.Critique
	}
	const shown = 4
	for _, g := range in.Groups[:min(shown, len(in.Groups))] {
		address := record.Address{RolloutID: record.RolloutID{Run: in.Run, Kind: record.Try, Step: in.Step, Task: g.Task}, Attempt: g.Attempts[0]}
		r.Shown = append(r.Shown, search.Result{Task: g.Task, Score: &g.Rewards[0], Attempts: []search.Attempt{{Trace: address.String(), Reward: &g.Rewards[0]}}})
	}
	out := TryReflectorResult{Prompt: r.Prompt, Refusal: search.RefusedTooLong}
	q := &question{spec: run.spec, answers: answers(run)}
	if err := c.render(ctx, run, r, q); err != nil || q.refusal != "" {
		return out, err
	}
	from, err := c.Reflectors(run.spec.Optimizer.Reflector)
	if err != nil {
		return out, err
	}
	defer from.Close()
	key, text := q.unused(from)
	stored, failed, err := c.reflect(ctx, from, key, text, AskReflectorInput{Run: in.Run, Request: r.ID})
	out.Model, out.Refusal = stored.Reply.Model, search.RefusedFailed
	if err == nil && !failed {
		out.Text, out.Refusal = q.read(r, stored.Reply)
	}
	return out, err
}

const (
	// keepLimit is for how long a reply waits for the store, and keepEvery how often it is
	// tried.
	keepLimit = 5 * time.Minute
	keepEvery = 250 * time.Millisecond
)

// keep stores a reply. While that fails it tries again, because a database that restarts is
// back within seconds, and a reply that is lost has to be paid for a second time.
func (c *Coordinator) keep(ctx context.Context, r record.Reflection) (record.Reflection, error) {
	ctx, cancel := context.WithTimeout(ctx, keepLimit)
	defer cancel()
	for {
		stored, _, err := c.Ledger.PutReflection(ctx, r)
		if err == nil {
			return stored, nil
		}
		select {
		case <-time.After(keepEvery):
		case <-ctx.Done():
			return record.Reflection{}, err
		}
	}
}

// question is what a reflector is asked.
type question struct {
	spec spec.Spec
	// refusal is why the question can't be asked.
	refusal search.Refusal
	text    reflector.Question
	// answers are those of all tasks, which a new text must not have.
	answers []string
	// used are the keys of the replies that the search has used. Of the requests of this
	// round that are alike, equal is the number of those before this one.
	used  []string
	equal int
}

// question returns what to ask for a request. It is nil if the request has its answer.
func (c *Coordinator) question(ctx context.Context, in AskReflectorInput) (*question, optimize.Request, error) {
	s, unlock, err := c.search(ctx, in.Run)
	if err != nil {
		return nil, optimize.Request{}, err
	}
	open, _ := s.history.Open()
	i := slices.IndexFunc(open, func(r optimize.Request) bool { return r.ID == in.Request })
	if i < 0 {
		unlock()
		return nil, optimize.Request{}, nil
	}
	r, run := open[i], s.run
	q := &question{spec: run.spec, answers: answers(run), equal: s.history.EqualBefore(r)}
	for _, served := range s.history.Served() {
		if key := s.reflections[served.ID]; key != "" {
			q.used = append(q.used, key)
		}
	}
	unlock() // reading the attempts takes longer
	return q, r, c.render(ctx, run, r, q)
}

// render writes the text of a question, with the attempts that a request shows.
func (c *Coordinator) render(ctx context.Context, run *cachedRun, r optimize.Request, q *question) error {
	traces, err := c.traces(ctx, run, r.Request)
	if err != nil {
		return err
	}
	o := run.spec.Optimizer.Reflector
	rendered, err := search.Render(r.Request, q.placeholders(r), traces, o.ShownBytes)
	if errors.Is(err, search.ErrTooLarge) {
		q.refusal = search.RefusedTooLong
		return nil
	}
	q.text = reflector.Question{System: rendered.System, User: rendered.User, MaxTokens: o.MaxTokens}
	return err
}

// unused returns the question under the first key that the search has not used: an equal
// question asks for another reply.
func (q *question) unused(from reflector.Reflector) (key string, text reflector.Question) {
	text = q.text
	for left := q.equal; ; text.Try++ {
		key = from.Key(text)
		if slices.Contains(q.used, key) {
			continue
		}
		if left == 0 {
			return key, text
		}
		left--
	}
}

func (q *question) rules(r optimize.Request) search.Rules {
	rules := search.Rules{Answers: q.answers, Verbatim: q.spec.Optimizer.VerbatimAnswer, MaxBytes: q.spec.Prompts.MaxBytes}
	rules.Current, _ = r.Candidate.Text(r.Prompt)
	rules.Placeholders = q.placeholders(r)
	return rules
}

// placeholders returns those of the prompt that a request is to improve.
func (q *question) placeholders(r optimize.Request) []string {
	for _, t := range q.spec.Prompts.Texts {
		if t.Name == r.Prompt {
			return t.Placeholders
		}
	}
	return nil
}

// answers returns the answers of all tasks that a search has to do with.
func answers(run *cachedRun) []string {
	var out []string
	for _, kind := range []record.Kind{record.Train, record.Validation, record.Gate, record.Test} {
		for _, t := range run.tasks[kind] {
			if answer := strings.TrimSpace(t.Answer); answer != "" {
				out = append(out, answer)
			}
		}
	}
	return out
}

// traces returns what the attempts did that a request shows.
func (c *Coordinator) traces(ctx context.Context, run *cachedRun, r search.Request) ([]search.Trace, error) {
	if len(r.Shown) == 0 {
		return nil, nil
	}
	codec, err := c.Codecs.named(run.spec.Model.Codec)
	if err != nil {
		return nil, err
	}
	set, err := run.spec.Prompts.Set()
	if err != nil {
		return nil, err
	}
	kind := record.Train
	if r.Split == search.SplitValidation {
		kind = record.Validation
	}
	var out []search.Trace
	for _, shown := range r.Shown {
		task, err := run.task(kind, shown.Task)
		if err != nil {
			return nil, err
		}
		for _, a := range shown.Attempts {
			address, err := record.ParseAddress(a.Trace)
			if err != nil {
				return nil, fmt.Errorf("request %s shows an attempt: %w", r.ID, err)
			}
			attempt, err := c.Attempts.Attempt(ctx, address)
			if err != nil {
				return nil, fmt.Errorf("read attempt %s: %w", address, err)
			}
			history, err := c.Attempts.Exchanges(ctx, address)
			if err != nil {
				return nil, fmt.Errorf("read the calls of attempt %s: %w", address, err)
			}
			reward := 0.0
			if a.Reward != nil {
				reward = *a.Reward
			}
			out = append(out, trace(judge.Of(attempt, history, task, reward, codec), attempt, history, set, a.Reward))
		}
	}
	return out, nil
}

// trace returns an attempt as a reflector sees it, which reads marks where prompts of the set
// stood. history has the attempt's calls.
func trace(a judge.Attempt, attempt record.Attempt, history []record.Exchange, set prompts.Set, reward *float64) search.Trace {
	t := search.Trace{
		Input: a.Task, Output: a.Result, Failure: strings.TrimSpace(attempt.Failure + " " + attempt.Error), Words: attempt.Verdict, Reward: reward,
	}
	requests := attribution.Requests(history)
	for i, call := range a.Calls {
		shown := search.Call{Agent: call.Agent, Reply: search.Message{Text: call.Answered.Text, Calls: toolCalls(call.Answered)}}
		for _, m := range call.Asked {
			shown.Asked = append(shown.Asked, search.Message{Role: m.Role, Text: m.Text, Calls: toolCalls(m)})
		}
		if r := requests[i]; r != nil {
			mark(&shown, len(r.Dialog)-len(shown.Asked), r.Dialog, rewrite.Recorded(set, attempt.Terms, history[i].Call, r).Replacements)
		}
		if call.Problem != "" {
			t.Failure = strings.TrimSpace(t.Failure + " a reply looks like a call of a tool and is none: " + call.Problem)
		}
		t.Calls = append(t.Calls, shown)
	}
	return t
}

// mark names the prompts that a call read, and puts marks where they stood in the messages
// that are new in it, which are those of the request's dialog from the one with number first.
func mark(c *search.Call, first int, all []dialog.Message, replaced []rewrite.Replacement) {
	texts := map[int]string{} // with marks, by the number of their message
	for _, r := range replaced {
		if !slices.Contains(c.Prompts, r.Prompt) {
			c.Prompts = append(c.Prompts, r.Prompt)
		}
		if r.Message >= max(first, 0) { // not of an earlier call, and not of a tool
			texts[r.Message] = all[r.Message].Content
		}
	}
	ends := slices.SortedFunc(slices.Values(replaced), func(a, b rewrite.Replacement) int { return cmp.Compare(b.Start, a.Start) })
	for _, r := range ends { // from the end of a text, so that its beginning stays where it is
		if text, ok := texts[r.Message]; ok {
			texts[r.Message] = text[:r.Start] + search.Mark(r.Prompt) + text[r.End:]
		}
	}
	for n, text := range texts {
		c.Asked[n-first].Text = strings.ToValidUTF8(text, "\uFFFD")
	}
	slices.Sort(c.Prompts)
}

func toolCalls(m judge.Message) []search.ToolCall {
	var out []search.ToolCall
	for _, t := range m.Tools {
		out = append(out, search.ToolCall{Name: t.Name, Arguments: t.Arguments})
	}
	return out
}

// Reflectors makes the reflector that a spec describes. A missing API key is an error that
// is tried again, because the person who starts the worker can set one.
type Reflectors func(of spec.Reflector) (reflector.Reflector, error)
