package activities_test

import (
	"fmt"
	"path/filepath"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
)

// Each iteration is a run of eight steps of a model of 20 million parameters. A sampler
// loads each of its versions. held-N-MB is the memory of the process after step N.
func BenchmarkRunMemory(b *testing.B) {
	a := model.Architecture{
		VocabSize: 4096, HiddenSize: 256, Layers: 24, Heads: 4, KVHeads: 2, HeadDim: 64,
		FeedForward: 768, MaxPositions: 256, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	for b.Loop() {
		w := newTestEnv(b)
		require.NoError(b, hf.WriteDirectory(filepath.Join(w.dir, "base"), a, a.Init(1)))
		s := w.several()
		s.Training.Steps = 8
		w.start(s)
		trainer := w.trainer()
		sampler := serve.New(native.New(native.Options{}), w.catalog, 4)
		for step := 1; step <= s.Training.Steps; step++ {
			_, err := do[activities.VersionResult](b, trainer.TrainStep, trainStep(step, w.groups(step, 4)))
			require.NoError(b, err)
			require.NoError(b, sampler.Publish(b.Context(), model.VersionID{Run: "demo", Policy: model.DefaultPolicy, Number: step}))
			if step%2 == 0 {
				b.ReportMetric(float64(held())/1e6, fmt.Sprintf("held-%d-MB", step))
			}
		}
		sampler.Close()
	}
}

// held returns the memory, in bytes, that the process has from the system.
func held() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
