package judge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
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
	client      *client
	left        atomic.Int64 // requests
	judged      atomic.Int64 // these are the numbers of Progress
	asked       atomic.Int64
	failed      atomic.Bool
}

// New returns a judge for a step.
func New(o Options, store Judgments, run, policy string, step int) *Judge {
	return &Judge{Options: o, run: run, policy: policy, step: step, store: store, client: newClient(o)}
}

// Close closes idle connections.
func (j *Judge) Close() { j.client.transport.CloseIdleConnections() }

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
		case errors.Is(err, trace.ErrNotFound):
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
