package update

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// warmStart has what the updates on demonstrations need.
type warmStart struct {
	spec           spec.Spec
	codec          dialog.Codec
	demonstrations tasks.Demonstrations
	work           *atomic.Uint64
}

// warmStart trains the learner that begin returns on the demonstrations. It continues
// from the point where an earlier executor was cut off.
func (m *Maker) warmStart(ctx context.Context, t Target, run Run, codec dialog.Codec, begin func(context.Context) (learner, error)) (learner, map[string]float64, error) {
	ws := *run.Spec.Model.WarmStart
	demonstrations, err := tasks.OpenDemonstrations(ws.Demonstrations, run.Spec.Seed, ws.Updates)
	if err != nil {
		return learner{}, nil, Invalid(fmt.Errorf("warm start of run %s: %w", run.Name, err))
	}
	content, err := contentOf(ws.Demonstrations)
	if err != nil {
		return learner{}, nil, fmt.Errorf("warm start of run %s: %w", run.Name, err)
	}
	key, err := basis(struct {
		Engine, Fingerprint, Spec, Demonstrations string
	}{run.Engine.Name(), run.Engine.Fingerprint(), run.SpecDigest, content})
	if err != nil {
		return learner{}, nil, err
	}
	w := warmStart{run.Spec, codec, demonstrations, &m.work}
	l, done, err := m.resumeUpdates(ctx, updatePlan{
		Target: t, run: run, codec: codec.Name(), basis: key, updates: ws.Updates, begin: begin, update: w.update,
	})
	if errors.Is(err, model.ErrDiverged) {
		err = Final(fmt.Errorf("%w: lower model.warm_start.learning_rate and start another run", err))
	}
	if err != nil {
		return learner{}, nil, fmt.Errorf("warm start of run %s: %w", run.Name, err)
	}
	return l, map[string]float64{"warm_start/loss": done.last[warmLoss], "warm_start/updates": float64(ws.Updates)}, nil
}

const warmLoss = "warm_start/loss"

// contentOf returns the digest of the file that a source of demonstrations names, or ""
// if it names none. Saved updates on another file are not continued.
func contentOf(source string) (string, error) {
	s, err := spec.ParseSource(source)
	if err != nil || s.Path == "" {
		return "", err
	}
	data, err := os.ReadFile(s.Path)
	if err != nil {
		return "", fmt.Errorf("read demonstrations: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// update makes update u by cross-entropy on the trained tokens of its dialogs. Its
// loss is in nats per token.
func (w warmStart) update(ctx context.Context, l learner, u int) (map[string]float64, error) {
	ws := *w.spec.Model.WarmStart
	dialogs := w.demonstrations.Batch(u, ws.Batch)
	rows := make([]model.Row, len(dialogs))
	trained := make([][]bool, len(dialogs))
	total := 0
	for i, d := range dialogs {
		var err error
		if rows[i].Tokens, trained[i], err = w.codec.Demonstration(d); err != nil {
			return nil, Invalid(fmt.Errorf("demonstration %d: %w", i, err))
		}
		rows[i].Needed = trained[i][1:]
		for _, t := range rows[i].Needed {
			if t {
				total++
			}
		}
	}
	losses := make([]float64, len(rows))
	_, err := l.policy.Update(ctx, rows, func(i int, logprobs, _ []float32, gradient, _ []float32) {
		tokens := newTokens(logprobs)
		for j := range logprobs {
			if trained[i][j+1] {
				tokens.Weight[j] = 1 / float64(total)
			}
		}
		losses[i] = credit.Objective{Surrogate: credit.CrossEntropy{}}.Evaluate(tokens).Loss
		narrow(gradient, tokens.Gradient)
		w.work.Add(1)
	}, warmAdamW(ws, w.spec.Training.Optimizer, u, ws.Updates))
	if err != nil {
		return nil, err
	}
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	return map[string]float64{warmLoss: sum}, nil
}
