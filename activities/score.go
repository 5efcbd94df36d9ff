package activities

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/update"
)

// ScoreBatch lets version Step−1 of the critic estimate the return that is still to come,
// before each sampled token of the step's attempts. A repeated call gives the same
// values, to the bit if the engine is deterministic.
func (t *Trainer) ScoreBatch(ctx context.Context, in ScoreBatchInput) (_ ScoreBatchResult, err error) {
	defer temporalError(&err)
	id := model.VersionID{Run: in.Run, Policy: model.CriticPolicy, Number: in.Step - 1}
	digest, err := t.score(ctx, "values", StepGroups{Run: in.Run, Step: in.Step, Groups: in.Groups}, id,
		func(ctx context.Context, m *update.Maker, run update.Run, trajectories []trace.Trajectory) ([]byte, error) {
			return m.ScoreCritic(ctx, id, run, trajectories)
		})
	return ScoreBatchResult{Values: digest}, err
}

// ScoreReference computes the log-probabilities of the attempts' sampled tokens under
// version 0 of a policy. They are part of the rewards if the spec has
// credit.kl_in_reward. A repeated call gives the same values, to the bit if the engine is
// deterministic.
func (t *Trainer) ScoreReference(ctx context.Context, in ScoreReferenceInput) (_ ScoreReferenceResult, err error) {
	defer temporalError(&err)
	id := model.VersionID{Run: in.Run, Policy: in.Policy}
	digest, err := t.score(ctx, "log-probabilities", in.StepGroups, id,
		func(ctx context.Context, m *update.Maker, run update.Run, trajectories []trace.Trajectory) ([]byte, error) {
			next := id
			next.Number = in.Step
			return m.ScoreReference(ctx, next, run, trajectories)
		})
	return ScoreReferenceResult{Reference: digest}, err
}

// score stores the values or log-probabilities that a version computes for the attempts
// of a step.
func (t *Trainer) score(ctx context.Context, numbers string, of StepGroups, by model.VersionID, f func(context.Context, *update.Maker, update.Run, []trace.Trajectory) ([]byte, error)) (string, error) {
	subject := fmt.Sprintf("%s of step %d by %s", numbers, of.Step, by)
	return exclusively(ctx, t, subject, func(ctx context.Context, m *update.Maker) (string, error) {
		run, err := t.run(ctx, of.Run)
		if err != nil {
			return "", fmt.Errorf("%s: %w", subject, err)
		}
		trajectories, err := t.Attempts.Trajectories(ctx, addresses(of))
		if err != nil {
			return "", fmt.Errorf("%s: read the trajectories: %w", subject, err)
		}
		wake, err := t.sleep(ctx, m, of.Run)
		if err != nil {
			return "", fmt.Errorf("%s: %w", subject, err)
		}
		defer wake()
		data, err := f(ctx, m, run, trajectories)
		if err != nil {
			return "", fmt.Errorf("%s: %w", subject, err)
		}
		digest, err := t.Blobs.Put(ctx, data)
		if err != nil {
			return "", fmt.Errorf("store the %s: %w", subject, err)
		}
		return digest, nil
	})
}
