package judge

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// question is what a judge is to be asked about an attempt.
type question struct {
	told
	key     string
	address trace.Address
	// nonsense is how many answers could not be read before.
	nonsense int
}

func (j *Judge) question(a Attempt) (question, error) {
	t, err := j.told(a)
	return question{told: t, key: t.key(j.Model), address: a.Address}, err
}

// settle asks until there is an answer that can be read, and keeps it. The scores are
// those that then stand: somebody else may have been first, a run that judges the same
// or a worker that took over while this one hung, and then nobody is asked.
func (j *Judge) settle(ctx context.Context, q question) ([]float64, error) {
	if known, err := j.kept.Judgment(ctx, q.key); !errors.Is(err, trace.ErrNotFound) {
		return known.Scores, err
	}
	messages := q.messages()
	why, answer := errors.New("see the record"), ""
	for try := q.nonsense + 1; try <= tries; try++ {
		if j.left.Add(-1) < 0 {
			return nil, fmt.Errorf("%w: answers that could not be read have used up what credit.judge.requests allows, %d", ErrRequests, j.Requests)
		}
		var err error
		answer, err = j.client.ask(ctx, messages)
		j.asked.Add(1)
		if err != nil {
			j.left.Add(1)
			return nil, err
		}
		scores, err := read(answer, q.calls)
		if err == nil {
			return j.keep(ctx, q, scores)
		}
		messages, why = q.again(answer, err), err
		if err := j.complain(ctx, q, try, answer, why); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w, %d times; at last: %w: %.200q", ErrNonsense, tries, why, answer)
}

func (j *Judge) keep(ctx context.Context, q question, scores []float64) ([]float64, error) {
	stands, _, err := j.kept.PutJudgment(ctx, record.Judgment{
		Key: q.key, Model: j.Model, Scores: scores, Run: j.run, Policy: j.policy, Step: j.step,
	})
	return stands.Scores, err
}

// complain puts on record that an answer could not be read. It has cost a request,
// whatever becomes of this process.
func (j *Judge) complain(ctx context.Context, q question, try int, answer string, why error) error {
	return j.kept.PutNonsense(ctx, record.Nonsense{
		Run: j.run, Policy: j.policy, Step: j.step, Judgment: q.key, Try: try, Answer: excerpt(answer), Reason: why.Error(),
	})
}
