package model_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// batch returns a correct batch of two trajectories and three rows.
func batch() model.Batch {
	row := func(trajectory int, tokens ...int32) model.BatchRow {
		n := len(tokens)
		r := model.BatchRow{
			Row: model.Row{Tokens: tokens, Temperature: 1}, Sampled: make([]bool, n), Logprobs: make([]float32, n),
			Advantages: make([]float32, n), Calls: make([]int32, n), Trajectory: trajectory,
		}
		for i := range n {
			r.Calls[i] = -1
			if i >= 2 {
				r.Sampled[i], r.Logprobs[i], r.Advantages[i], r.Calls[i] = true, -0.5, 1, 0
			}
		}
		return r
	}
	b := model.Batch{
		Format: model.BatchFormat, Policy: "main", Step: 1, VocabSize: 10,
		Trajectories: []model.BatchTrajectory{{Attempt: "demo/train-1/0/0/1"}, {Attempt: "demo/train-1/0/1/2"}},
		Rows:         []model.BatchRow{row(0, 1, 2, 3), row(1, 4, 5), row(1, 6, 7, 8, 9)},
	}
	b.Count()
	return b
}

func TestDenominatorsCountTrainedTokens(t *testing.T) {
	t.Parallel()
	b := batch()
	require.NoError(t, b.Check())
	require.Equal(t, model.BatchDenominators{Tokens: 3, Sequences: 2}, b.Denominators)
	require.Equal(t, 1, b.Trajectories[0].Trained)
	require.Equal(t, 2, b.Trajectories[1].Trained)
	b.Count() // counting again changes nothing
	require.NoError(t, b.Check())
	rows := b.EngineRows()
	require.Equal(t, []int32{4, 5}, rows[1].Tokens)
}

func TestMasksAfterCountingKeepTheDenominators(t *testing.T) {
	t.Parallel()
	b := batch()
	r := &b.Rows[2]
	r.Sampled[3], r.Logprobs[3], r.Advantages[3] = false, 0, 0
	require.NoError(t, b.Check())
	require.Equal(t, 3, b.Denominators.Tokens)
	require.Equal(t, 1, r.Trained())
}

func TestBadBatchesAreRefusedByRowAndToken(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(-1)
	for want, spoil := range map[string]func(*model.Batch){
		`format is "x"`:                           func(b *model.Batch) { b.Format = "x" },
		"policy is empty":                         func(b *model.Batch) { b.Policy = "" },
		"step is 0":                               func(b *model.Batch) { b.Step = 0 },
		"vocab_size is 0":                         func(b *model.Batch) { b.VocabSize = 0 },
		"trajectory 1 (demo/train-1/0/1/2)":       func(b *model.Batch) { b.Trajectories[1].Reward = nan },
		"trajectory 0 ()":                         func(b *model.Batch) { b.Trajectories[0].Attempt = "" },
		"row 2: token 1: id 10":                   func(b *model.Batch) { b.Rows[2].Tokens[1] = 10 },
		"row 2: token 0: id -1":                   func(b *model.Batch) { b.Rows[2].Tokens[0] = -1 },
		"row 0: token 2: advantage is NaN":        func(b *model.Batch) { b.Rows[0].Advantages[2] = float32(nan) },
		"row 2: token 3: log-probability is 0.25": func(b *model.Batch) { b.Rows[2].Logprobs[3] = 0.25 },
		"row 2: token 2: log-probability is -Inf": func(b *model.Batch) { b.Rows[2].Logprobs[2] = float32(inf) },
		"row 2: token 2: log-probability is NaN":  func(b *model.Batch) { b.Rows[2].Logprobs[2] = float32(nan) },
		"row 0: token 1: log-probability -0 and adv": func(b *model.Batch) {
			b.Rows[0].Logprobs[1] = float32(math.Copysign(0, -1))
			b.Rows[0].Advantages[1] = 2
		},
		"row 2: token 3: sampled is true, but its ca": func(b *model.Batch) { b.Rows[2].Calls[3] = -1 },
		"row 1: token 0: sampled is false, but its c": func(b *model.Batch) { b.Rows[1].Calls[0] = -2 },
		"row 1: token 0 is marked sampled":            func(b *model.Batch) { b.Rows[1].Sampled[0] = true },
		"row 1: 2 tokens with 1 sampled":              func(b *model.Batch) { b.Rows[1].Sampled = b.Rows[1].Sampled[:1] },
		"row 1: 2 tokens with 2 sampled, 0 logprobs":  func(b *model.Batch) { b.Rows[1].Logprobs = nil },
		"row 0: 1 tokens, want":                       func(b *model.Batch) { b.Rows[0].Tokens = b.Rows[0].Tokens[:1] },
		"row 0: temperature is 0":                     func(b *model.Batch) { b.Rows[0].Temperature = 0 },
		"row 0: trajectory 2 of 2":                    func(b *model.Batch) { b.Rows[0].Trajectory = 2 },
		"row 0: trajectory -1 of 2":                   func(b *model.Batch) { b.Rows[0].Trajectory = -1 },
		"counts 0 trained tokens, its rows have 1":    func(b *model.Batch) { b.Trajectories[0].Trained = 0 },
		"denominators count 2 tokens":                 func(b *model.Batch) { b.Denominators.Tokens = 2 },
		"denominators count 1 sequences":              func(b *model.Batch) { b.Denominators.Sequences = 1 },
	} {
		b := batch()
		spoil(&b)
		err := b.Check()
		require.ErrorIs(t, err, model.ErrBatch, want)
		require.ErrorContains(t, err, want)
	}
}

// shared returns the batch of two policies: row 1 is of writer, the others are of checker.
func shared() model.Batch {
	b := batch()
	for i, policy := range []string{"checker", "writer", "checker"} {
		b.Rows[i].Policy = policy
	}
	r := &b.Rows[1]
	r.Sampled[1], r.Logprobs[1], r.Advantages[1], r.Calls[1] = true, -1, 2, 3
	for i := range b.Trajectories {
		b.Trajectories[i].Advantage = 1.5
	}
	b.Count()
	return b
}

func TestAPolicyIsTrainedOnItsOwnRows(t *testing.T) {
	t.Parallel()
	b := shared()
	require.NoError(t, b.Check())
	require.Equal(t, model.PoliciesBatchFormat, b.Format)
	require.Equal(t, model.BatchDenominators{Tokens: 4, Sequences: 3}, b.Denominators)

	writer := b.Of("writer")
	require.NoError(t, writer.Check())
	require.Equal(t, model.BatchFormat, writer.Format)
	require.Equal(t, "writer", writer.Policy)
	require.Equal(t, model.BatchDenominators{Tokens: 1, Sequences: 1}, writer.Denominators)
	require.Equal(t, []model.BatchTrajectory{
		{Attempt: "demo/train-1/0/0/1", Advantage: 1.5}, {Attempt: "demo/train-1/0/1/2", Advantage: 1.5, Trained: 1},
	}, writer.Trajectories)
	require.Len(t, writer.Rows, 1)
	require.Equal(t, []int32{4, 5}, writer.Rows[0].Tokens)
	require.Empty(t, writer.Rows[0].Policy)

	checker := b.Of("checker")
	require.NoError(t, checker.Check())
	require.Equal(t, model.BatchDenominators{Tokens: 3, Sequences: 2}, checker.Denominators)
	require.Len(t, checker.Rows, 2)
	require.Equal(t, 1, checker.Rows[1].Trajectory, "an index into all trajectories")

	idle := b.Of("idle")
	require.NoError(t, idle.Check())
	require.Empty(t, idle.Rows)
	require.Zero(t, idle.Denominators)

	require.Equal(t, shared(), b, "the batch stays")
	require.Equal(t, batch(), batch().Of("main"), "a batch of one policy is its own part")
}

func TestBadBatchesOfPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*model.Batch){
		"row 2 names no policy, and others do":                                       func(b *model.Batch) { b.Rows[2].Policy = "" },
		"row 0 names no policy, and others do":                                       func(b *model.Batch) { b.Rows[0].Policy = "" },
		`format is "fulgurite.batch/1", want "fulgurite.batch/3"`:                    func(b *model.Batch) { b.Format = model.BatchFormat },
		"trajectory 1 (demo/train-1/0/1/2) counts 2 trained tokens, its rows have 3": func(b *model.Batch) { b.Trajectories[1].Trained = 2 },
	} {
		b := shared()
		spoil(&b)
		err := b.Check()
		require.ErrorIs(t, err, model.ErrBatch)
		require.ErrorContains(t, err, want)
	}
}
