package native_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

func benchmarkArchitectures() map[string]model.Architecture {
	large := model.Architecture{
		VocabSize: 512, HiddenSize: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 64, FeedForward: 768,
		MaxPositions: 128, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
	return map[string]model.Architecture{"d64": model.Tiny(288), "d256": large}
}

func BenchmarkUpdate(b *testing.B) {
	for name, a := range benchmarkArchitectures() {
		for _, shape := range [][2]int{{1, 64}, {32, 64}, {128, 30}} {
			b.Run(fmt.Sprintf("%s/rows=%d/tokens=%d", name, shape[0], shape[1]), func(b *testing.B) {
				tr, err := engine("", 0).NewTrainer(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
				require.NoError(b, err)
				defer tr.Close()
				batch := make([]model.Row, shape[0])
				for i := range batch {
					batch[i].Tokens = make([]int32, shape[1])
					for t := range batch[i].Tokens {
						batch[i].Tokens[t] = int32((i*7 + t*t) % a.VocabSize)
					}
				}
				n := shape[0] * (shape[1] - 1)
				b.ReportAllocs()
				for b.Loop() {
					_, err := tr.Update(b.Context(), batch, likelihood(n), adamW())
					require.NoError(b, err)
				}
				b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}

// One iteration is 40 new tokens for each of the requests, after a prompt of 8;
// allocations are those of the requests, not of the steps.
func BenchmarkDecode(b *testing.B) {
	const prompt, tokens = 8, 40
	for name, a := range benchmarkArchitectures() {
		for _, requests := range []int{1, 32, 64, 128} {
			b.Run(fmt.Sprintf("%s/requests=%d", name, requests), func(b *testing.B) {
				d, err := engine("", 0).NewDecoder(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
				require.NoError(b, err)
				defer d.Close()
				b.ReportAllocs()
				for b.Loop() {
					var all sync.WaitGroup
					for i := range requests {
						all.Go(func() {
							_, err := d.Decode(b.Context(), model.DecodeRequest{
								Prompt: make([]int32, prompt), MaxTokens: tokens, Temperature: 1, Seed: uint64(i),
							})
							if err != nil {
								b.Error(err)
							}
						})
					}
					all.Wait()
				}
				seconds := b.Elapsed().Seconds()
				b.ReportMetric(float64(requests*tokens*b.N)/seconds, "tokens/s")
				b.ReportMetric(seconds/float64(tokens*b.N)*1e6, "µs/step")
			})
		}
	}
}
