// Package judge asks a language model how much each call of an attempt was worth.
//
// The model has an API like OpenAI's. One request shows it one attempt: the task, each
// call with its new messages and its answer, the result and the reward. The model answers
// with a score from 0 to 10 for each call. Package credit defines the effect of such a
// score on training.
//
// A judge does not give the same answer twice, but training has to end in the same bits
// however often it is interrupted. So each judgment is made only once: it is stored under
// a digest of the whole prompt ([Judgments]), and every later request for it, in this run
// or another, gets the stored one. The prompt contains no address, id, time or span, so
// it does not depend on when, where or under which name a run continues.
//
// Guarantees: there are scores for every call of every attempt, or an error. No score is
// made up, and a step never makes more requests than it may. Errors that wrap
// [ErrNonsense], [ErrRequests] or [ErrRefused] are final. After any other error, call
// again: what was judged before is stored.
package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/internal/chatclient"
	"github.com/fulgurite/fulgurite/record"
)

const (
	// tries is how often a judge is asked about an attempt, until an answer can be
	// parsed.
	tries = 5
	// atOnce is the most requests that wait for an answer.
	atOnce = 8
)

// Final errors.
var (
	// ErrNonsense means that no answer about an attempt could be read.
	ErrNonsense = errors.New("the judge's answers can't be read")
	// ErrRequests means that a step would need more requests than it may make.
	ErrRequests = errors.New("no requests are left")
	// ErrRefused means that the judge's API does not accept the request.
	ErrRefused = errors.New("the judge refuses what it is asked")
)

// Judgments stores judgments permanently.
type Judgments interface {
	// PutJudgment returns the judgment that is stored under the key, and whether this
	// call stored it.
	PutJudgment(ctx context.Context, j record.Judgment) (record.Judgment, bool, error)
	Judgment(ctx context.Context, key string) (record.Judgment, error)
	// Judged counts the judgments that a step had made.
	Judged(ctx context.Context, run, policy string, step int) (int, error)
	// PutNonsense stores an answer that could not be read, and Nonsense lists those of
	// a step: each is a request that was made.
	PutNonsense(ctx context.Context, n record.Nonsense) error
	Nonsense(ctx context.Context, run, policy string, step int) ([]record.Nonsense, error)
}

// Options tells which judge to ask, and how.
type Options struct {
	URL, Model string
	// Key is the API key; if it is empty, none is sent.
	Key    string
	Rubric string
	// Requests is the most requests that a step may make. Only answered ones count,
	// whatever the answer: a judge that is not available is asked until it is.
	Requests int
	// Timeout is how long one answer may take.
	Timeout time.Duration
}

// Progress is how far a judge has come.
type Progress struct {
	Judged int64 `json:"judged"` // attempts
	Asked  int64 `json:"asked"`  // requests that were answered, whatever the answer
}

// Judge scores the attempts of one step. Close it after the step.
type Judge struct {
	Options
	run, policy string
	step        int
	store       Judgments
	client      *chatclient.Client
	left        atomic.Int64 // requests
	judged      atomic.Int64 // these are the numbers of Progress
	asked       atomic.Int64
	failed      atomic.Bool
}

// New returns a judge for a step.
func New(o Options, store Judgments, run, policy string, step int) *Judge {
	client := chatclient.New(chatclient.Options{
		API: chatclient.OpenAI, URL: o.URL, Model: o.Model, Key: o.Key, Timeout: o.Timeout, Connections: atOnce,
	})
	return &Judge{Options: o, run: run, policy: policy, step: step, store: store, client: client}
}

// Close closes idle connections.
func (j *Judge) Close() { j.client.Close() }

// Progress returns how far Scores has come. It is safe for concurrent use.
func (j *Judge) Progress() Progress {
	return Progress{j.judged.Load(), j.asked.Load()}
}

// Scores returns the scores of all attempts, call by call. The judge is not asked about
// an attempt without calls, and only once about attempts that are equal.
func (j *Judge) Scores(ctx context.Context, attempts []Attempt) ([][]float64, error) {
	requests := make([]request, len(attempts))
	for i, a := range attempts {
		var err error
		if requests[i], err = j.request(a); err != nil {
			return nil, err
		}
	}
	scores, open, err := j.stored(ctx, requests)
	if err != nil {
		return nil, err
	}
	made, err := j.ask(ctx, open)
	if err != nil {
		return nil, err
	}
	for i, r := range open {
		scores[r.key] = made[i]
	}
	out := make([][]float64, len(attempts))
	for i, r := range requests {
		out[i] = append([]float64{}, scores[r.key]...)
		if len(out[i]) != r.calls {
			return nil, fmt.Errorf("judgment %s of attempt %s has %d scores for %d calls", r.key, r.address, len(out[i]), r.calls)
		}
	}
	return out, nil
}

// stored returns the judgments that are on record, and each request without one once.
func (j *Judge) stored(ctx context.Context, requests []request) (scores map[string][]float64, open []request, err error) {
	scores = map[string][]float64{}
	for _, r := range requests {
		if _, seen := scores[r.key]; seen || r.calls == 0 {
			continue
		}
		switch known, err := j.store.Judgment(ctx, r.key); {
		case errors.Is(err, record.ErrNotFound):
			open = append(open, r)
		case err != nil:
			return nil, nil, err
		default:
			j.judged.Add(1)
			scores[r.key] = known.Scores
			continue
		}
		scores[r.key] = nil
	}
	return scores, open, nil
}

// ask makes the open requests. If one fails, it makes no more, but waits for those in
// progress and stores their answers.
func (j *Judge) ask(ctx context.Context, open []request) ([][]float64, error) {
	if len(open) == 0 {
		return nil, nil
	}
	judgments, err := j.store.Judged(ctx, j.run, j.policy, j.step)
	if err != nil {
		return nil, err
	}
	nonsense, err := j.store.Nonsense(ctx, j.run, j.policy, j.step)
	if err != nil {
		return nil, err
	}
	left := j.Requests - judgments - len(nonsense)
	if len(open) > left {
		return nil, fmt.Errorf("%w: %d attempts of step %d still need a judgment, and credit.judge.requests allows %d, of which %d were used for judgments and %d for answers that could not be read",
			ErrRequests, len(open), j.step, j.Requests, judgments, len(nonsense))
	}
	for i := range open {
		for _, n := range nonsense {
			if n.Judgment == open[i].key {
				open[i].nonsense = max(open[i].nonsense, n.Try)
			}
		}
	}
	j.left.Store(int64(left))
	out := make([][]float64, len(open))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, r := range open {
		g.Go(func() error {
			if j.failed.Load() {
				return nil
			}
			var err error
			if out[i], err = j.judge(ctx, r); err != nil {
				j.failed.Store(true)
				return fmt.Errorf("judge attempt %s by %s: %w", r.address, j.Model, err)
			}
			j.judged.Add(1)
			return nil
		})
	}
	return out, g.Wait()
}

// Attempt is the part of an attempt that a judge reads. Its JSON is part of the keys of
// judgments: a change of it needs another promptVersion.
type Attempt struct {
	// Address is for errors; the judge does not see it.
	Address record.Address `json:"-"`
	Task    string         `json:"task"`
	// Expected is the right answer; empty if the task has none.
	Expected string `json:"expected_answer,omitempty"`
	Calls    []Call `json:"calls"`
	Result   string `json:"result"`
	// Failure says in one word how the agent failed.
	Failure string  `json:"failure,omitempty"`
	Reward  float64 `json:"reward"`
}

// Call is one call of an Attempt.
type Call struct {
	Number int    `json:"call"` // from 1
	Agent  string `json:"agent,omitempty"`
	// Asked holds the new messages: results of tools, what a user says. If the call does
	// not continue an earlier one, it holds the whole dialog.
	Asked    []Message `json:"asked"`
	Answered Message   `json:"answered"`
	// Problem says why an answer that looks like the call of a tool is not one.
	Problem string `json:"problem,omitempty"`
}

// Message is one message of a dialog.
type Message struct {
	Role    string `json:"role,omitempty"`
	Thought string `json:"thought,omitempty"`
	Text    string `json:"text"`
	Tools   []Tool `json:"tool_calls,omitempty"`
}

// Tool is a tool that an answer calls.
type Tool struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// content returns the attempt in the form that the judge reads.
func (a Attempt) content() (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(a); err != nil {
		return "", fmt.Errorf("encode attempt %s: %w", a.Address, err)
	}
	return b.String(), nil
}

// Of a text that is longer than both together, a judge reads this many bytes at its
// beginning and at its end.
const (
	headBytes = 5000
	tailBytes = 3000
)

// truncate leaves the middle of a long text out and says how much is missing.
func truncate(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= headBytes+tailBytes {
		return text
	}
	head, tail := headBytes, len(text)-tailBytes
	for !utf8.RuneStart(text[head]) {
		head--
	}
	for !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[%d bytes are left out here]\n%s", text[:head], tail-head, text[tail:])
}

// askModel returns the model's answer. An error that wraps ErrRefused is caused by the request
// itself; any other error may be temporary, also because somebody may correct the key or
// the address.
func (j *Judge) askModel(ctx context.Context, messages []chatclient.Message) (string, error) {
	reply, err := j.client.Ask(ctx, chatclient.Request{Messages: messages})
	var refusal *chatclient.Refusal
	if errors.As(err, &refusal) && refusal.OfRequest() {
		return "", fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return reply.Text, err
}
