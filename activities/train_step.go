package activities

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// TrainStep makes version Step of version Step−1 by one optimizer update on the
// step's batch. A version that stands already is returned as it is.
func (t *Trainer) TrainStep(ctx context.Context, in TrainStepInput) (_ VersionResult, err error) {
	defer settle(&err)
	id := model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step}
	return t.once(ctx, id, func(run training) (VersionResult, error) {
		return t.trainStep(ctx, in, id, run)
	})
}

func (t *Trainer) trainStep(ctx context.Context, in TrainStepInput, id model.VersionID, run training) (VersionResult, error) {
	s, engine := run.spec, run.engine
	parent, err := t.Versions.Version(ctx, model.VersionID{Run: in.Run, Policy: in.Policy, Number: in.Step - 1})
	if err != nil {
		return VersionResult{}, fmt.Errorf("read the parent of version %s: %w", id, err)
	}
	batch, err := t.batch(ctx, in.Batch)
	if err != nil {
		return VersionResult{}, err
	}
	trainer, err := t.hold(ctx, engine, parent.Manifest)
	if err != nil {
		return VersionResult{}, fmt.Errorf("load the parent of version %s: %w", id, err)
	}
	t.manifest = "" // from here on, until the version stands, what is in memory is none
	metrics, err := beating(ctx, func() any { return in.Step }, func() (map[string]float64, error) {
		return update(ctx, trainer, batch, s, in.Step, s.Training.Total(run.Splits[trace.Train].Count))
	})
	if errors.Is(err, model.ErrDiverged) {
		return VersionResult{}, invalid(fmt.Errorf("version %s: %w: lower training.optimizer.learning_rate", id, err))
	}
	if err != nil {
		return VersionResult{}, fmt.Errorf("update to version %s: %w", id, err)
	}
	v, made, err := t.commit(ctx, in.Run, engine, trainer.Checkpoint(), model.Manifest{
		Policy: in.Policy, Number: in.Step, Parent: parent.Number, Codec: s.Model.Codec, Batch: in.Batch, Metrics: metrics,
	})
	if err != nil {
		return VersionResult{}, err
	}
	t.manifest = made // no later step asks for it if another's version stands
	return VersionResult{Number: v.Number, Weights: v.Weights, Metrics: v.Metrics}, nil
}

func (t *Trainer) batch(ctx context.Context, digest string) (model.Batch, error) {
	data, err := t.Blobs.Get(ctx, digest)
	if err != nil {
		return model.Batch{}, fmt.Errorf("read batch %s: %w", digest, err)
	}
	b, err := hf.DecodeBatch(data)
	if err != nil {
		return model.Batch{}, invalid(fmt.Errorf("batch %s: %w", digest, err))
	}
	return b, nil
}

// update makes one update on b and describes it.
func update(ctx context.Context, trainer model.Trainer, b model.Batch, s spec.Spec, step, steps int) (map[string]float64, error) {
	opt := adamW(s.Training.Optimizer, step, steps)
	loss := credit.PPOClip{Low: s.Loss.ClipLow, High: s.Loss.ClipHigh}
	denominators := credit.Denominators{Trajectory: make([]int, len(b.Trajectories))}
	for i, t := range b.Trajectories {
		denominators.Trajectory[i] = t.Trained
	}
	stats := make([]credit.Stats, len(b.Rows))
	entropy := make([]float64, len(b.Rows))
	objective := func(i int, logprobs, entropies, gradient, _ []float32) {
		r := b.Rows[i]
		tokens := newTokens(logprobs)
		weight := denominators.Weight(credit.Aggregation(s.Loss.Aggregation), r.Trajectory)
		for j := range logprobs {
			if !r.Sampled[j+1] {
				continue
			}
			tokens.Sampled[j], tokens.Advantage[j], tokens.Weight[j] = float64(r.Logprobs[j+1]), float64(r.Advantages[j+1]), weight
			entropy[i] += float64(entropies[j])
		}
		stats[i] = loss.Evaluate(tokens)
		narrow(gradient, tokens.Gradient)
	}
	norm, err := trainer.Update(ctx, b.EngineRows(), objective, opt)
	if err != nil {
		return nil, err
	}
	var sum credit.Stats
	var nats float64
	for i := range stats { // in order of rows, so that metrics repeat to the bit
		sum.Add(stats[i])
		nats += entropy[i]
	}
	n := math.Max(1, float64(sum.Count))
	return map[string]float64{
		"train/loss": sum.Loss, "train/gradient_norm": norm, "train/learning_rate": opt.LearningRate,
		"train/entropy": nats / n, "train/ratio": sum.Ratio / n, "train/clip_fraction": sum.Clipped / n,
		"train/kl": sum.KL / n, "train/mismatch": sum.Gap / n,
	}, nil
}

func newTokens(logprobs []float32) credit.Tokens {
	n := len(logprobs)
	t := credit.Tokens{
		Current: make([]float64, n), Sampled: make([]float64, n), Advantage: make([]float64, n),
		Weight: make([]float64, n), Gradient: make([]float64, n),
	}
	for i, l := range logprobs {
		t.Current[i] = float64(l)
	}
	return t
}

func narrow(dst []float32, src []float64) {
	for i, v := range src {
		dst[i] = float32(v)
	}
}
