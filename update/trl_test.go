package update_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/update"
)

// The tolerances of the loss, which is about 0.8, and of gradients: of the length of each
// tensor's gradient, and of its largest number.
const (
	lossTolerance     = 1e-5
	gradientTolerance = 1e-4
)

// goldenDPO is what testsuite/parity/dpo/make.py wrote.
type goldenDPO struct {
	Beta, Loss, Margin, Accuracy float64
	Pairs                        int
	architecture                 model.Architecture
	arrays                       []hf.Array
}

func readDPO(t *testing.T) goldenDPO {
	t.Helper()
	folder := cmp.Or(os.Getenv("FULGURITE_DPO"), "../testsuite/parity/testdata/dpo")
	file, err := os.Open(filepath.Join(folder, "qwen2.safetensors"))
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	info, err := file.Stat()
	require.NoError(t, err)
	arrays, metadata, err := hf.ReadArrays(file, info.Size())
	require.NoError(t, err)
	g := goldenDPO{arrays: arrays}
	require.NoError(t, json.Unmarshal([]byte(metadata["numbers"]), &g))
	g.architecture, err = hf.ReadConfig([]byte(metadata["config"]))
	require.NoError(t, err)
	return g
}

func (g goldenDPO) weights(t *testing.T, kind string) model.Weights {
	t.Helper()
	w := g.architecture.Zeros()
	for i := range w {
		data, err := hf.Find[float32](g.arrays, kind+"."+w[i].Name)
		require.NoError(t, err)
		w[i].Data = data
	}
	return w
}

func (g goldenDPO) batch(t *testing.T) model.Batch {
	t.Helper()
	b := model.Batch{Policy: model.DefaultPolicy, Step: 1, VocabSize: g.architecture.VocabSize}
	for i := range g.Pairs {
		var of [3][]int32
		for k, kind := range []string{"prompt", "chosen", "rejected"} {
			var err error
			of[k], err = hf.Find[int32](g.arrays, fmt.Sprint(kind, ".", i))
			require.NoError(t, err)
		}
		rows := model.PreferenceRows(of[0], of[1], of[2], i, i, i)
		b.Trajectories = append(b.Trajectories, model.BatchTrajectory{Attempt: fmt.Sprint("pair ", i), Group: i})
		b.Rows = append(b.Rows, rows[:]...)
	}
	b.Count()
	require.NoError(t, b.Check())
	return b
}

// The first moment of a fresh optimizer with beta1 0 is the gradient.
func TestThePreferenceUpdateIsThatOfTRL(t *testing.T) {
	t.Parallel()
	graphs, err := gomlx.New(gomlx.Options{})
	require.NoError(t, err)
	for _, e := range []model.Engine{native.New(native.Options{}), graphs} {
		t.Run(e.Name(), func(t *testing.T) {
			t.Parallel()
			g := readDPO(t)
			policy, err := e.NewTrainer(model.Checkpoint{Architecture: g.architecture, Weights: g.weights(t, "policy")})
			require.NoError(t, err)
			defer policy.Close()
			reference, err := e.NewTrainer(model.Checkpoint{Architecture: g.architecture, Weights: g.weights(t, "reference")})
			require.NoError(t, err)
			defer reference.Close()
			s := spec.Spec{Loss: spec.Loss{Preference: &spec.LossPreference{Beta: g.Beta}}}.WithDefaults()
			metrics, err := update.PreferenceUpdate(t.Context(), s, policy, reference, g.batch(t), model.AdamW{Epsilon: 1e-8})
			require.NoError(t, err)
			require.InDelta(t, g.Loss, metrics["train/loss"], lossTolerance)
			require.InDelta(t, g.Margin, metrics["train/preference_margin"], lossTolerance)
			require.InDelta(t, g.Accuracy, metrics["train/preference_accuracy"], lossTolerance)
			want, worst := g.weights(t, "gradient"), 0.0
			for i, got := range policy.Checkpoint().Mean {
				length, difference, largest, furthest := 0.0, 0.0, 0.0, 0.0
				for j, x := range want[i].Data {
					d := float64(x) - float64(got.Data[j])
					length, difference = math.Hypot(length, float64(x)), math.Hypot(difference, d)
					largest, furthest = max(largest, math.Abs(float64(x))), max(furthest, math.Abs(d))
				}
				require.Positive(t, length, got.Name)
				require.Less(t, difference, gradientTolerance*length, got.Name)
				require.Less(t, furthest, gradientTolerance*largest, got.Name)
				worst = max(worst, difference/length, furthest/largest)
			}
			t.Logf("loss differs by %.1e, gradients by %.1e of their length or largest number", math.Abs(g.Loss-metrics["train/loss"]), worst)
		})
	}
}
