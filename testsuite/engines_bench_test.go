package testsuite_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/gomlx"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// BenchmarkEngines measures both engines on the demo's model, side by side: an
// update on 32 sequences of 64 tokens, and 40 tokens sampled for 1, 32 and 128
// requests at once.
func BenchmarkEngines(b *testing.B) {
	reference, err := gomlx.New(gomlx.Options{})
	require.NoError(b, err)
	a := model.Tiny(288)
	for _, e := range []model.Engine{native.New(native.Options{}), reference} {
		b.Run(e.Name()+"/update", func(b *testing.B) { benchmarkUpdate(b, e, a) })
		for _, requests := range []int{1, 32, 128} {
			b.Run(fmt.Sprintf("%s/decode-%d", e.Name(), requests), func(b *testing.B) { benchmarkDecode(b, e, a, requests) })
		}
	}
}

func benchmarkUpdate(b *testing.B, e model.Engine, a model.Architecture) {
	trainer, err := e.NewTrainer(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
	require.NoError(b, err)
	defer trainer.Close()
	rows := make([]model.Row, 32)
	for i := range rows {
		rows[i].Tokens = make([]int32, 64)
		for t := range rows[i].Tokens {
			rows[i].Tokens[t] = int32((i*7 + t*t) % a.VocabSize)
		}
	}
	tokens := len(rows) * 63
	objective := func(_ int, logprobs, _, gradient, _ []float32) {
		for i := range logprobs {
			gradient[i] = -1 / float32(tokens)
		}
	}
	opt := model.AdamW{LearningRate: 1e-4, Beta1: 0.9, Beta2: 0.98, Epsilon: 1e-8, ClipNorm: 1}
	_, err = trainer.Update(b.Context(), rows, objective, opt) // graphs are compiled once
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := trainer.Update(b.Context(), rows, objective, opt)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}

func benchmarkDecode(b *testing.B, e model.Engine, a model.Architecture, requests int) {
	const tokens = 40
	decoder, err := e.NewDecoder(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
	require.NoError(b, err)
	defer decoder.Close()
	round := func(seed uint64) {
		var wg sync.WaitGroup
		for r := range requests {
			wg.Go(func() {
				_, err := decoder.Decode(b.Context(), model.DecodeRequest{
					Prompt: []int32{1, 9, 10, 19, 11, 7, 3}, MaxTokens: tokens, Temperature: 1, Seed: seed + uint64(r),
				})
				if err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	round(0)
	b.ReportAllocs()
	for seed := uint64(1); b.Loop(); seed++ {
		round(seed << 16)
	}
	b.ReportMetric(float64(requests*tokens*b.N)/b.Elapsed().Seconds(), "tokens/s")
}
