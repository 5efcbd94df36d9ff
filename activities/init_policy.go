package activities

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"go.temporal.io/sdk/activity"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/checkpoint"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks"
)

// saveEvery is how many warm-start updates are at most done again after a crash.
const saveEvery = 100

// warmProgress is the heartbeat of a warm start: what a later attempt goes on
// from.
type warmProgress struct {
	Updates  int    `json:"updates"`
	Manifest string `json:"manifest,omitempty"`
}

// InitPolicy makes version 0: the base model, warm-started on demonstrations if
// the spec says so. A warm start that was cut off goes on from its last saved
// update, with the same result to the bit.
func (t *Trainer) InitPolicy(ctx context.Context, in InitPolicyInput) (_ VersionResult, err error) {
	defer settle(&err)
	return t.once(ctx, model.VersionID{Run: in.Run, Policy: in.Policy}, func(run training) (VersionResult, error) {
		return t.initPolicy(ctx, in, run)
	})
}

func (t *Trainer) initPolicy(ctx context.Context, in InitPolicyInput, run training) (VersionResult, error) {
	s, engine := run.spec, run.engine
	codec, err := t.Codecs(s.Model.Codec)
	if err != nil {
		return VersionResult{}, invalid(err)
	}
	start, err := base(s, codec)
	if err != nil {
		return VersionResult{}, invalid(fmt.Errorf("model.base %s: %w", s.Model.Base, err))
	}
	metrics := map[string]float64{}
	if s.Model.WarmStart != nil {
		w := warmStart{spec: s, engine: engine, codec: codec, blobs: t.Blobs, policy: in.Policy}
		if start, metrics, err = w.run(ctx, start); err != nil {
			return VersionResult{}, fmt.Errorf("warm start of run %s: %w", in.Run, err)
		}
	}
	// The reinforcement learning begins with fresh moments.
	start.Updates, start.Mean, start.Variance = 0, nil, nil
	v, _, err := t.commit(ctx, in.Run, engine, start, model.Manifest{Policy: in.Policy, Parent: -1, Codec: s.Model.Codec, Metrics: metrics})
	if err != nil {
		return VersionResult{}, err
	}
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
}

// base is the model that the spec starts from.
func base(s spec.Spec, codec dialog.Codec) (model.Checkpoint, error) {
	if s.Model.Base == "tiny" {
		a := model.Tiny(codec.VocabSize())
		return model.Checkpoint{Architecture: a, Weights: a.Init(s.Seed)}, nil
	}
	a, w, err := hf.ReadDirectory(s.Model.Base)
	if err == nil && a.VocabSize < codec.VocabSize() {
		err = fmt.Errorf("vocabulary of %d tokens, but codec %s has %d", a.VocabSize, codec.Name(), codec.VocabSize())
	}
	return model.Checkpoint{Architecture: a, Weights: w}, err
}

// warmStart is supervised training under way.
type warmStart struct {
	spec   spec.Spec
	engine model.Engine
	codec  dialog.Codec
	blobs  Blobs
	policy string
}

// run trains c on the demonstrations, from where an earlier attempt was cut off.
func (w warmStart) run(ctx context.Context, c model.Checkpoint) (model.Checkpoint, map[string]float64, error) {
	ws := *w.spec.Model.WarmStart
	demonstrations, err := tasks.OpenDemonstrations(ws.Demonstrations, w.spec.Seed, ws.Updates)
	if err != nil {
		return c, nil, invalid(err)
	}
	var saved warmProgress
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &saved); err != nil {
			return c, nil, fmt.Errorf("read the progress of the attempt before: %w", err)
		}
	}
	if saved.Manifest != "" {
		if c, _, err = checkpoint.Load(ctx, w.blobs, saved.Manifest); err != nil {
			return c, nil, fmt.Errorf("load warm-start update %d: %w", saved.Updates, err)
		}
	}
	trainer, err := w.engine.NewTrainer(c)
	if err != nil {
		return c, nil, invalid(err)
	}
	defer trainer.Close()
	var progress atomic.Pointer[warmProgress]
	progress.Store(&saved)
	loss, err := beating(ctx, func() any { return *progress.Load() }, func() (float64, error) {
		loss := 0.0
		for u := trainer.Checkpoint().Updates; u < ws.Updates; u++ {
			loss, err = w.update(ctx, trainer, demonstrations.Batch(u, ws.Batch), u)
			if errors.Is(err, model.ErrDiverged) {
				err = invalid(fmt.Errorf("%w: lower model.warm_start.learning_rate", err))
			}
			if err != nil {
				return loss, fmt.Errorf("update %d: %w", u, err)
			}
			if done := u + 1; done%saveEvery == 0 && done < ws.Updates {
				manifest, err := w.save(ctx, trainer.Checkpoint())
				if err != nil {
					return loss, fmt.Errorf("save update %d: %w", done, err)
				}
				p := warmProgress{Updates: done, Manifest: manifest}
				progress.Store(&p)
				activity.RecordHeartbeat(ctx, p)
			}
		}
		return loss, nil
	})
	return trainer.Checkpoint(), map[string]float64{"warm_start/loss": loss, "warm_start/updates": float64(ws.Updates)}, err
}

func (w warmStart) save(ctx context.Context, c model.Checkpoint) (string, error) {
	manifest, _, err := checkpoint.Save(ctx, w.blobs, c, model.Manifest{
		Policy: w.policy, Parent: -1, Codec: w.codec.Name(), Engine: w.engine.Name(), Fingerprint: w.engine.Fingerprint(),
	})
	return manifest, err
}

// update makes one update by cross-entropy on the trained tokens of dialogs and
// returns its loss in nats per token.
func (w warmStart) update(ctx context.Context, trainer model.Trainer, dialogs []dialog.Dialog, u int) (float64, error) {
	rows := make([]model.Row, len(dialogs))
	trained := make([][]bool, len(dialogs))
	total := 0
	for i, d := range dialogs {
		var err error
		if rows[i].Tokens, trained[i], err = w.codec.Demonstration(d); err != nil {
			return 0, invalid(fmt.Errorf("demonstration %d: %w", i, err))
		}
		for _, t := range trained[i][1:] {
			if t {
				total++
			}
		}
	}
	losses := make([]float64, len(rows))
	objective := func(i int, logprobs, _ []float32, gradient, _ []float32) {
		tokens := newTokens(logprobs)
		for j := range logprobs {
			if trained[i][j+1] {
				tokens.Weight[j] = 1 / float64(total)
			}
		}
		losses[i] = credit.CrossEntropy{}.Evaluate(tokens).Loss
		narrow(gradient, tokens.Gradient)
	}
	ws := *w.spec.Model.WarmStart
	if _, err := trainer.Update(ctx, rows, objective, warmAdamW(ws, w.spec.Training.Optimizer, u, ws.Updates)); err != nil {
		return 0, err
	}
	sum := 0.0
	for _, l := range losses {
		sum += l
	}
	return sum, nil
}
