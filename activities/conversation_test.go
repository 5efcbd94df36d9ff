package activities_test

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/checkpoint"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
)

// off returns how far recorded log-probabilities are from those of the version that
// trains, token by token. The ratios are on either side of every bound, and on none.
func off(token int) float32 {
	return []float32{-0.45, 0.1, 0.31, -0.12, 0.02, -0.3, 0.55, 0.17}[token%8]
}

// conversation returns the calls of one attempt, with different lengths: three calls that
// extend each other, and one that returns to the first and continues in another way.
func (w *testEnv) conversation(seed int32, parent model.Trainer) []record.Call {
	w.t.Helper()
	span := func(from, n int32) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = 20 + (seed*7+from*11+int32(i*i)*3+int32(i))%80
		}
		return out
	}
	calls := make([]record.Call, 4)
	prompt := span(0, 3)
	for seq := range calls {
		if seq == 3 {
			prompt = append(append(slices.Clone(calls[0].Prompt), calls[0].Completion...), span(9, 2)...)
		}
		c := record.Call{Seq: seq, Seed: uint64(seq), Temperature: 0.8, Prompt: slices.Clone(prompt), Completion: span(int32(seq)+1, 2+(seed+int32(3*seq))%5)}
		row := model.Row{Tokens: append(slices.Clone(c.Prompt), c.Completion...), Temperature: c.Temperature}
		logprobs, _, err := parent.Score(w.t.Context(), []model.Row{row})
		require.NoError(w.t, err)
		for i, l := range logprobs[0][len(c.Prompt)-1:] {
			c.Logprobs = append(c.Logprobs, min(l+off(int(seed)+5*seq+i), 0))
		}
		calls[seq] = c
		prompt = append(slices.Clone(row.Tokens), span(int32(seq)+5, 2)...)
	}
	return calls
}

// conversations stores two batches of a step with the same calls: in one they are merged
// into sequences, in the other each call is separate.
func (w *testEnv) conversations(step int, e model.Engine) (merged, apart string) {
	w.t.Helper()
	c, _, err := checkpoint.Load(w.t.Context(), w.blobs, w.manifest(step-1))
	require.NoError(w.t, err)
	parent, err := e.NewTrainer(c)
	require.NoError(w.t, err)
	defer parent.Close()
	var batches [2]model.Batch
	for i := range batches {
		batches[i] = model.Batch{Policy: model.DefaultPolicy, Step: step, VocabSize: dialog.Compact().VocabSize()}
	}
	for i := range 4 {
		calls := w.conversation(int32(i), parent)
		for j := range batches {
			batches[j].Trajectories = append(batches[j].Trajectories, model.BatchTrajectory{Attempt: "demo/train-1/0/0/1", Group: i / 2})
		}
		batches[0].Rows = append(batches[0].Rows, rowsOfCalls(i, calls)...)
		for _, one := range calls {
			batches[1].Rows = append(batches[1].Rows, rowsOfCalls(i, []record.Call{one})...)
		}
	}
	require.Len(w.t, batches[0].Rows, 8)
	require.Len(w.t, batches[1].Rows, 16)
	var digests [2]string
	for i := range batches {
		batches[i].Count()
		data, err := hf.EncodeBatch(batches[i])
		require.NoError(w.t, err)
		digests[i], err = w.blobs.Put(w.t.Context(), data)
		require.NoError(w.t, err)
	}
	return digests[0], digests[1]
}

// rowsOfCalls returns the rows of calls. The advantage of a call depends on the attempt
// and the call; some are positive and some negative.
func rowsOfCalls(trajectory int, calls []record.Call) []model.BatchRow {
	var out []model.BatchRow
	for _, s := range record.Merge(calls) {
		n := len(s.Tokens)
		r := model.BatchRow{
			Row: model.Row{Tokens: s.Tokens, Temperature: s.Temperature}, Sampled: s.Sampled, Logprobs: s.Logprobs,
			Advantages: make([]float32, n), Calls: make([]int32, n), Trajectory: trajectory,
		}
		for i, c := range s.Call {
			r.Calls[i] = -1
			if c >= 0 {
				seq := calls[c].Seq
				r.Calls[i], r.Advantages[i] = int32(seq), []float32{1, -0.6, 0.8, -1.3, 0.4}[(trajectory+seq)%5]
			}
		}
		out = append(out, r)
	}
	return out
}
