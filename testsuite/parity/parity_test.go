package parity_test

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
)

// The tolerances. transformers computes the angles of rotary embeddings in float32, which
// at position 500 is wrong by up to 3e-5.
const (
	logprobTolerance  = 1e-4 // nats, absolute
	lossTolerance     = 1e-4 // relative
	gradientTolerance = 1e-4 // of the length of each tensor's gradient, and of its largest number
)

// eachEngine calls f for every model with both engines.
func eachEngine(t *testing.T, f func(t *testing.T, g golden, e model.Engine)) {
	t.Helper()
	graphs, err := gomlx.New(gomlx.Options{})
	require.NoError(t, err)
	eachGolden(t, func(t *testing.T, _ string, g golden) {
		for _, e := range []model.Engine{native.New(native.Options{}), graphs} {
			t.Run(e.Name(), func(t *testing.T) {
				t.Parallel()
				f(t, g, e)
			})
		}
	})
}

func trainer(t *testing.T, g golden, e model.Engine) model.Trainer {
	t.Helper()
	tr, err := e.NewTrainer(model.Checkpoint{Architecture: g.architecture, Weights: g.weights})
	require.NoError(t, err)
	t.Cleanup(tr.Close)
	return tr
}

func TestLogProbabilitiesAreThoseOfTransformers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, g golden, e model.Engine) {
		logprobs, _, err := trainer(t, g, e).Score(t.Context(), g.rows(t))
		require.NoError(t, err)
		for i := range logprobs {
			require.InDeltaSlice(t, find[float32](t, g, "logprobs", i), logprobs[i], logprobTolerance, "row %d", i)
		}
	})
}

// Logits are compared up to a constant that softmax removes: the log-probability of every
// token after the first, a middle and the last token of each row.
func TestLogitsAreThoseOfTransformers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, g golden, e model.Engine) {
		tr, vocabulary := trainer(t, g, e), g.architecture.VocabSize
		for i, row := range g.rows(t)[:3] {
			want := find[float32](t, g, "scores", i)
			for _, p := range find[int32](t, g, "positions", i) {
				ends := make([]model.Row, vocabulary)
				for v := range ends {
					ends[v].Tokens = append(append([]int32{}, row.Tokens[:p+1]...), int32(v))
				}
				logprobs, _, err := tr.Score(t.Context(), ends)
				require.NoError(t, err)
				for v := range ends {
					require.InDelta(t, want[v], logprobs[v][p], logprobTolerance, "row %d, position %d, token %d", i, p, v)
				}
				want = want[vocabulary:]
			}
		}
	})
}

// The first moment of a fresh optimizer with beta1 0 is the gradient.
func TestLossAndGradientsAreThoseOfTransformers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, g golden, e model.Engine) {
		tr, rows, count, total := trainer(t, g, e), g.rows(t), 0, 0.0
		for _, r := range rows {
			count += len(r.Tokens) - 1
		}
		logprobs, _, err := tr.Score(t.Context(), rows)
		require.NoError(t, err)
		for _, row := range logprobs {
			for _, p := range row {
				total -= float64(p)
			}
		}
		require.InEpsilon(t, g.loss, total/float64(count), lossTolerance)

		_, err = tr.Update(t.Context(), rows, func(_ int, _, _, gradient, _ []float32) {
			for i := range gradient {
				gradient[i] = -1 / float32(count)
			}
		}, model.AdamW{Epsilon: 1e-8})
		require.NoError(t, err)
		for _, got := range tr.Checkpoint().Mean {
			want := find[float32](t, g, "gradient", got.Name)
			length, difference, largest, furthest := 0.0, 0.0, 0.0, 0.0
			for j := range want {
				d := float64(want[j]) - float64(got.Data[j])
				length, difference = math.Hypot(length, float64(want[j])), math.Hypot(difference, d)
				largest, furthest = max(largest, math.Abs(float64(want[j]))), max(furthest, math.Abs(d))
			}
			require.Positive(t, length, got.Name)
			require.Less(t, difference, gradientTolerance*length, got.Name)
			require.Less(t, furthest, gradientTolerance*largest, got.Name)
		}
	})
}

// The prompts have from one token up to more tokens than the original context of the
// scaled models. The decoder, which uses a cache of keys and values, must agree with the
// forward pass of the trainer. For the native engine they must agree to the bit.
func TestGreedyTokensAreThoseOfTransformers(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, g golden, e model.Engine) {
		d, err := e.NewDecoder(model.Checkpoint{Architecture: g.architecture, Weights: g.weights})
		require.NoError(t, err)
		defer d.Close()
		tr := trainer(t, g, e)
		for i := range 3 {
			prompt, want := find[int32](t, g, "prompt", i), find[int32](t, g, "greedy", i)
			got, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: len(want)})
			require.NoError(t, err)
			require.Equal(t, want, got.Tokens)
			whole := model.Row{Tokens: append(append([]int32{}, prompt...), want...)}
			logprobs, _, err := tr.Score(t.Context(), []model.Row{whole})
			require.NoError(t, err)
			if scored := logprobs[0][len(prompt)-1:]; e.Deterministic() {
				require.Equal(t, scored, got.Logprobs)
			} else {
				require.InDeltaSlice(t, scored, got.Logprobs, 1e-5)
			}
		}
	})
}

// transformers reads these and golden/load.py compares, where a folder is named.
func TestWrittenDirectoriesReadTheSame(t *testing.T) {
	t.Parallel()
	eachGolden(t, func(t *testing.T, name string, g golden) {
		dir := t.TempDir()
		if folder := os.Getenv("FULGURITE_PARITY_WRITE"); folder != "" {
			dir = filepath.Join(folder, name)
			require.NoError(t, os.MkdirAll(dir, 0o700))
		}
		require.NoError(t, hf.WriteDirectory(dir, g.architecture, g.weights))
		a, w, err := hf.ReadDirectory(dir)
		require.NoError(t, err)
		require.Equal(t, g.architecture, a)
		require.Equal(t, g.weights, w)
	})
}
