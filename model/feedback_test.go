package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// chosen returns a batch of two pairs of one group each, whose rows take turns.
func chosen() model.Batch {
	b := model.Batch{
		Policy: "main", Step: 1, VocabSize: 10,
		Trajectories: []model.BatchTrajectory{{Attempt: "a"}, {Attempt: "b"}, {Attempt: "c", Group: 1}},
	}
	one := model.PreferenceRows([]int32{1, 2}, []int32{3, 4, 5}, []int32{6}, 7, 0, 1)
	other := model.PreferenceRows([]int32{8}, []int32{9}, []int32{1, 2}, 4, 2, 2)
	b.Rows = []model.BatchRow{one[0], other[1], one[1], other[0]}
	b.Count()
	return b
}

// corrected returns a batch of one text.
func corrected() model.Batch {
	b := model.Batch{
		Policy: "main", Step: 1, VocabSize: 10, Trajectories: []model.BatchTrajectory{{Attempt: "a"}},
		Rows: []model.BatchRow{model.SupervisedRow([]int32{1, 2}, []int32{3, 4, 5}, 0)},
	}
	b.Count()
	return b
}

func TestFeedbackBatchesHaveTheirOwnFormat(t *testing.T) {
	t.Parallel()
	b := chosen()
	require.NoError(t, b.Check())
	require.Equal(t, "fulgurite.batch/4", b.Format)
	require.Equal(t, model.Preference, b.Objective())
	require.Equal(t, model.BatchDenominators{Tokens: 7, Sequences: 4}, b.Denominators)
	require.Equal(t, []int32{1, 2, 3, 4, 5}, b.Rows[0].Tokens)
	require.Equal(t, []bool{false, false, true, true, true}, b.Rows[0].Sampled)
	require.Equal(t, []int32{-1, -1, 0, 0, 0}, b.Rows[0].Calls)

	b = corrected()
	require.NoError(t, b.Check())
	require.Equal(t, "fulgurite.batch/4", b.Format)
	require.Equal(t, model.Supervised, b.Objective())
	require.Equal(t, model.BatchDenominators{Tokens: 3, Sequences: 1}, b.Denominators)
	b.Format = model.BatchFormat
	require.ErrorContains(t, b.Check(), `want "fulgurite.batch/4"`)

	require.Equal(t, model.PolicyGradient, batch().Objective())
	require.Equal(t, model.PolicyGradient, model.Batch{}.Objective())
}

func TestPairsAreFoundByTheirNumber(t *testing.T) {
	t.Parallel()
	b := chosen()
	pairs, err := b.Pairs([]int{0, 1, 2, 3})
	require.NoError(t, err)
	require.Equal(t, []model.BatchPair{{Chosen: 0, Rejected: 2}, {Chosen: 3, Rejected: 1}}, pairs)
	pairs, err = b.Pairs([]int{3, 1})
	require.NoError(t, err)
	require.Equal(t, []model.BatchPair{{Chosen: 3, Rejected: 1}}, pairs)
	_, err = b.Pairs([]int{0, 1, 2})
	require.EqualError(t, err, "pair 4: row 1 has no chosen half")
}

func TestFeedbackOfSeveralPoliciesIsDivided(t *testing.T) {
	t.Parallel()
	b := chosen()
	for i, policy := range []string{"writer", "checker", "writer", "checker"} {
		b.Rows[i].Policy = policy
	}
	b.Count()
	require.NoError(t, b.Check())
	require.Equal(t, model.FeedbackBatchFormat, b.Format)
	writer := b.Of("writer")
	require.NoError(t, writer.Check())
	require.Equal(t, model.FeedbackBatchFormat, writer.Format)
	require.Len(t, writer.Rows, 2)
	require.Equal(t, 4, writer.Denominators.Tokens)
	b.Rows[2].Policy = "checker"
	require.ErrorContains(t, b.Check(), `pair 7, rows 0 and 2: policies "writer" and "checker", want one`)
	b.Rows[2].Policy = ""
	require.ErrorContains(t, b.Check(), "row 2 names no policy")
}

func TestBadFeedbackIsRefused(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*model.Batch){
		`row 0 has the objective "preference" and row 3 "supervised"`:     func(b *model.Batch) { b.Rows[3].Objective = model.Supervised },
		`row 0 has the objective "preference" and row 2 ""`:               func(b *model.Batch) { b.Rows[2].Objective = "" },
		`row 0: unknown objective "kto"`:                                  func(b *model.Batch) { each(b, func(r *model.BatchRow) { r.Objective = "kto" }) },
		`row 0: pair is 7 and chosen true, but the objective is "super`:   func(b *model.Batch) { each(b, func(r *model.BatchRow) { r.Objective = model.Supervised }) },
		"pair 7: rows 0 and 2 are both its chosen half":                   func(b *model.Batch) { b.Rows[2].Chosen = true },
		"pair 7: row 0 has no rejected half":                              func(b *model.Batch) { b.Rows[2].Pair = 5 },
		"pair 4: row 1 has no chosen half":                                func(b *model.Batch) { b.Rows = b.Rows[:3] },
		"row 1: pair is -1":                                               func(b *model.Batch) { b.Rows[1].Pair = -1 },
		"rows 0 and 2: their prompts":                                     func(b *model.Batch) { b.Rows[2].Tokens[0] = 9 },
		"rows 3 and 1: temperatures 1 and 0.5":                            func(b *model.Batch) { b.Rows[1].Temperature = 0.5 },
		"rows 0 and 2: groups 0 and 2":                                    func(b *model.Batch) { b.Trajectories[1].Group = 2 },
		"row 0: token 2: log-probability -1 and advantage 0, want 0 with": func(b *model.Batch) { b.Rows[0].Logprobs[2] = -1 },
		"row 0: token 2: log-probability 0 and advantage 2, want 0 with":  func(b *model.Batch) { b.Rows[0].Advantages[2] = 2 },
		"row 2: no token is trained":                                      func(b *model.Batch) { b.Rows[2].Sampled[2] = false },
		"row 0: it has returns": func(b *model.Batch) {
			each(b, func(r *model.BatchRow) { r.Returns = make([]float32, len(r.Tokens)) })
		},
		"rows 0 and 2: their completions are equal": func(b *model.Batch) {
			pair := model.PreferenceRows([]int32{1, 2}, []int32{3}, []int32{3}, 7, 0, 1)
			b.Rows[0], b.Rows[2] = pair[0], pair[1]
		},
	} {
		b := chosen()
		spoil(&b)
		b.Count()
		err := b.Check()
		require.ErrorIs(t, err, model.ErrBatch, want)
		require.ErrorContains(t, err, want)
	}
	plain := batch()
	plain.Rows[1].Chosen = true
	require.ErrorContains(t, plain.Check(), `row 1: pair is 0 and chosen true, but the objective is ""`)
}

func each(b *model.Batch, change func(*model.BatchRow)) {
	for i := range b.Rows {
		change(&b.Rows[i])
	}
}
