package native_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

func TestRowScoresTheSameInEveryBatchAndPosition(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		w := weights(a, 1)
		alone, crowded := trainer(t, engine(kernelName, 1), a, w), trainer(t, engine(kernelName, 3), a, w)
		batch := append(rows(a, 64, 30, 2), masked(a, rows(a, 64, 30, 3), 4)...)
		var logprobs, entropies [][]uint32
		for i := range batch {
			l, e := score(t, alone, batch[i:i+1])
			logprobs, entropies = append(logprobs, bits(l[0])), append(entropies, bits(e[0]))
		}
		for size := 1; size <= len(batch); size += 1 + size/8 {
			from := (size * 37) % (len(batch) - size + 1)
			l, e := score(t, crowded, batch[from:from+size])
			for i := range l {
				require.Equal(t, logprobs[from+i], bits(l[i]), "row %d among %d", from+i, size)
				require.Equal(t, entropies[from+i], bits(e[i]), "row %d among %d", from+i, size)
			}
		}
	})
}

func TestUpdateIsTheSameForAnyNumberOfThreads(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		batch := append(rows(a, 25, 40, 2), masked(a, rows(a, 25, 40, 3), 4)...)
		var want []model.Weights
		for _, threads := range []int{1, 2, 5} {
			tr := trainer(t, engine(kernelName, threads), a, weights(a, 1))
			for range 3 {
				_, err := tr.Update(t.Context(), batch, likelihood(1000), adamW())
				require.NoError(t, err)
			}
			c := tr.Checkpoint()
			if want == nil {
				want = []model.Weights{c.Weights, c.Mean, c.Variance}
				continue
			}
			for i, have := range []model.Weights{c.Weights, c.Mean, c.Variance} {
				require.Equal(t, weightBits(want[i]), weightBits(have), "%d threads", threads)
			}
		}
	})
}

// The batch fills more shards than there are lanes, and has rows that fill a shard alone.
func TestLargeUpdateIsTheSameForAnyNumberOfThreads(t *testing.T) {
	t.Parallel()
	a := model.Tiny(64)
	a.MaxPositions = 600
	batch := append(rows(a, 40, 200, 2), rows(a, 4, 600, 3)...)
	var want []string
	for _, threads := range []int{1, 2, 20} {
		tr := trainer(t, engine("", threads), a, weights(a, 1))
		for range 2 {
			_, err := tr.Update(t.Context(), batch, likelihood(5000), adamW())
			require.NoError(t, err)
		}
		have := weightBits(tr.Checkpoint().Weights)
		if want == nil {
			want = have
		}
		require.Equal(t, want, have, "%d threads", threads)
	}
}

// Engines with equal fingerprints must agree to the bit; the vector sets share one
// fingerprint.
func TestEqualFingerprintsGiveEqualBits(t *testing.T) {
	t.Parallel()
	a := architectures()["everything"]
	batch := rows(a, 20, 40, 2)
	results := map[string][]string{}
	for _, set := range kernel.Sets() {
		e := engine(set.Name(), 2)
		require.Equal(t, set.Name(), e.Kernel())
		require.True(t, e.Deterministic())
		tr := trainer(t, e, a, weights(a, 1))
		for range 5 {
			_, err := tr.Update(t.Context(), batch, likelihood(400), adamW())
			require.NoError(t, err)
		}
		have := weightBits(tr.Checkpoint().Weights)
		if want, ok := results[e.Fingerprint()]; ok {
			require.Equal(t, want, have, "%s under %s", set.Name(), e.Fingerprint())
		}
		results[e.Fingerprint()] = have
	}
}

func TestResumedTrainingContinuesToTheBit(t *testing.T) {
	t.Parallel()
	a := architectures()["llama"]
	batch := rows(a, 20, 40, 2)
	tr := trainer(t, engine("", 2), a, weights(a, 1))
	for range 3 {
		_, err := tr.Update(t.Context(), batch, likelihood(400), adamW())
		require.NoError(t, err)
	}
	middle := tr.Checkpoint()
	require.Equal(t, 3, middle.Updates)
	resumed, err := engine("", 1).NewTrainer(middle)
	require.NoError(t, err)
	defer resumed.Close()
	for range 2 {
		for _, each := range []model.Trainer{tr, resumed} {
			_, err := each.Update(t.Context(), batch, likelihood(400), adamW())
			require.NoError(t, err)
		}
	}
	require.Equal(t, tr.Checkpoint(), resumed.Checkpoint())
}

// The log-probabilities that a decoder reports for its samples are those that training
// will compute, for greedy and for sampled tokens, at every temperature.
func TestDecodedLogprobsAreScoredLogprobs(t *testing.T) {
	t.Parallel()
	eachModel(t, func(t *testing.T, a model.Architecture, kernelName string) {
		w := weights(a, 1)
		tr, d := trainer(t, engine(kernelName, 2), a, w), decoder(t, engine(kernelName, 2), a, w)
		for _, r := range requests(a, 40, 11) {
			c, err := d.Decode(t.Context(), r)
			require.NoError(t, err)
			whole := model.Row{Tokens: append(append([]int32{}, r.Prompt...), c.Tokens...), Temperature: r.Temperature}
			logprobs, _ := score(t, tr, []model.Row{whole})
			require.Equal(t, bits(logprobs[0][len(r.Prompt)-1:]), bits(c.Logprobs))
		}
	})
}

func TestFingerprintNamesTheArithmetic(t *testing.T) {
	t.Parallel()
	prints := map[string]string{}
	for _, set := range kernel.Sets() {
		f := native.New(native.Options{Kernel: set.Name()}).Fingerprint()
		require.Contains(t, f, set.Arithmetic())
		if other, ok := prints[set.Arithmetic()]; ok {
			require.Equal(t, other, f)
		}
		prints[set.Arithmetic()] = f
	}
	distinct := map[string]bool{}
	for _, f := range prints {
		distinct[f] = true
	}
	require.Len(t, distinct, len(prints), fmt.Sprint(prints))
}
