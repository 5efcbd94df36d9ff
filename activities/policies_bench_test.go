package activities_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/spec"
)

// Each iteration is a step: 32 rows of 128 tokens, of which 64 are trained, with adapters of
// rank 8 over a base with 20 million parameters. The rows are those of one policy, or half of
// them those of a second one. The peak is that of the process, so run one of the two alone
// for it.
func BenchmarkStepOfPolicies(b *testing.B) {
	for _, names := range [][]string{{"writer"}, {"writer", "checker"}} {
		b.Run(strconv.Itoa(len(names)), func(b *testing.B) {
			w := newTestEnv(b)
			large := model.Architecture{
				VocabSize: dialog.Compact().VocabSize(), HiddenSize: 512, Layers: 6, Heads: 8, KVHeads: 4, HeadDim: 64,
				FeedForward: 1536, MaxPositions: 256, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
			}
			require.NoError(b, os.RemoveAll(filepath.Join(w.dir, "base")))
			require.NoError(b, os.Mkdir(filepath.Join(w.dir, "base"), 0o755))
			require.NoError(b, hf.WriteDirectory(filepath.Join(w.dir, "base"), large, large.Init(1)))
			s := w.spec()
			s.Training.Steps = 1000
			s.Model.LoRA = &spec.LoRA{Rank: 8, Alpha: 16, BasePrecision: "bf16"}
			s.Policies = map[string]spec.Policy{"writer": {Match: []spec.PolicyMatch{{Agent: "writer"}}}, "checker": {Frozen: len(names) == 1}}
			w.start(s)
			trainer := w.trainer()
			trainer.Engines = func(string) (model.Engine, error) { return native.New(native.Options{}), nil }
			step := 0
			next := func() {
				step++
				_, err := do[activities.VersionResult](b, trainer.TrainStep, trainStep(step, w.longRows(step, names)))
				require.NoError(b, err)
			}
			next() // it loads the base
			began := processorSeconds(b)
			for b.Loop() {
				next()
			}
			b.ReportMetric((processorSeconds(b)-began)/float64(b.N), "processor-s/op")
			b.ReportMetric(peakMB(b), "MB-peak")
		})
	}
}

// longRows stores a batch of 32 rows, which belong to the policies in turn.
func (w *testEnv) longRows(step int, policies []string) string {
	const rows, length = 32, 128
	batch := model.Batch{Format: model.BatchFormat, Policy: model.DefaultPolicy, Step: step, VocabSize: dialog.Compact().VocabSize()}
	for i := range rows {
		advantage := float64(1 - 2*(i/len(policies)%2))
		batch.Trajectories = append(batch.Trajectories, model.BatchTrajectory{Attempt: "demo/train-1/0/" + strconv.Itoa(i) + "/1", Advantage: advantage})
		r := model.BatchRow{Row: model.Row{Temperature: 1}, Trajectory: i, Policy: policies[i%len(policies)]}
		for k := range length {
			r.Tokens, r.Sampled = append(r.Tokens, int32((step+7*i+11*k)%64)), append(r.Sampled, k >= length/2)
			r.Logprobs, r.Advantages, r.Calls = append(r.Logprobs, 0), append(r.Advantages, 0), append(r.Calls, -1)
			if k >= length/2 {
				r.Logprobs[k], r.Advantages[k], r.Calls[k] = sampledAt, float32(advantage), 0
			}
		}
		batch.Rows = append(batch.Rows, r)
	}
	batch.Count()
	data, err := hf.EncodeBatch(batch)
	require.NoError(w.t, err)
	digest, err := w.blobs.Put(w.t.Context(), data)
	require.NoError(w.t, err)
	return digest
}

// processorSeconds returns what the process has used of the processors.
func processorSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// peakMB returns the most memory that the process has had resident, in MB; 0 where the system
// does not say.
func peakMB(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kB, err := strconv.ParseFloat(fields[0], 64)
	require.NoError(b, err)
	return kB * 1024 / 1e6
}
