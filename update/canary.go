package update

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

const (
	// recordedRows and recordedTokens limit the recorded text in a canary. recordedPrompt
	// limits the prompt before it.
	recordedRows   = 4
	recordedTokens = 64
	recordedPrompt = 1024
)

// canaryText has the rows of a canary that are added to the random tokens. It is nil if
// no rows are added.
type canaryText *[]model.CanaryRow

// canaryOf returns recorded text for a canary of an external server that samples from an
// adapter. Its arithmetic differs from the trainer's, and an adapter has most effect on
// text that it was trained on. The built-in sampler needs no text.
func canaryOf(s spec.Spec, b model.Batch) canaryText {
	if s.Sampling.Server == nil || s.Model.LoRA == nil {
		return nil
	}
	rows := []model.CanaryRow{}
	for i := range b.Rows {
		r := b.Rows[i]
		begin := 0
		for begin < len(r.Sampled) && !r.Sampled[begin] {
			begin++
		}
		end := min(begin+recordedTokens, len(r.Tokens)-1) // a server needs room for one token more
		if begin == 0 || begin >= end || begin > recordedPrompt {
			continue
		}
		rows = append(rows, model.CanaryRow{Prompt: r.Tokens[:begin], Tokens: r.Tokens[begin:end]})
	}
	if n := len(rows); n > recordedRows {
		for i := range recordedRows {
			rows[i] = rows[i*n/recordedRows] // from different groups
		}
		rows = rows[:recordedRows]
	}
	return &rows
}

// canary makes the canary of version t, which samplers have to reproduce: the
// log-probabilities of random tokens under policy, which holds c. If text is not nil, it
// adds the log-probabilities of text and, for all rows, those under the base without the
// adapter.
func (m *Maker) canary(ctx context.Context, t Target, engine model.Engine, policy model.Trainer, c model.Checkpoint, text canaryText) (*model.Canary, error) {
	canary, err := model.NewCanary(ctx, engine, c.Architecture, policy)
	if err == nil && text != nil && c.Adapter != nil {
		err = m.scoreBase(ctx, &canary, engine, policy, c, *text)
	}
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", t.ID, err)
	}
	return &canary, nil
}

// scoreBase adds text to the canary, scored by the policy. Then it scores all rows by the
// base without the adapter.
func (m *Maker) scoreBase(ctx context.Context, canary *model.Canary, engine model.Engine, policy model.Trainer, c model.Checkpoint, text []model.CanaryRow) error {
	scored, err := m.scoreCanary(ctx, policy, text)
	if err != nil {
		return err
	}
	for i, r := range text {
		r.Logprobs = scored[i]
		canary.Rows = append(canary.Rows, r)
	}
	unchanged, err := c.Adapter.Init(c.Architecture, 0) // a new adapter changes nothing; a model in files gets no weights here
	if err != nil {
		return err
	}
	bare, err := engine.NewTrainer(model.Checkpoint{Architecture: c.Architecture, Adapter: c.Adapter, Weights: unchanged})
	if err != nil {
		return fmt.Errorf("load the base: %w", err)
	}
	defer bare.Close()
	if scored, err = m.scoreCanary(ctx, bare, canary.Rows); err != nil {
		return err
	}
	for i := range canary.Rows {
		canary.Rows[i].Base = scored[i]
	}
	return canary.Check()
}

// scoreCanary returns the log-probabilities of the tokens of each row.
func (m *Maker) scoreCanary(ctx context.Context, policy model.Trainer, text []model.CanaryRow) ([][]float32, error) {
	rows := make([]model.Row, len(text))
	for i, r := range text {
		rows[i] = model.Row{Tokens: append(r.Prompt[:len(r.Prompt):len(r.Prompt)], r.Tokens...), Temperature: 1}
	}
	scored, err := m.score(rows, func(some []model.Row) ([][]float32, error) {
		logprobs, _, err := policy.Score(ctx, some)
		return logprobs, err
	})
	if err != nil {
		return nil, fmt.Errorf("score canaries: %w", err)
	}
	for i, r := range text {
		scored[i] = scored[i][len(r.Prompt)-1:]
	}
	return scored, nil
}
