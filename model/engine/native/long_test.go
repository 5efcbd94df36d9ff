package native_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// longContext returns the built-in model with room for the prompts of real frameworks.
func longContext() model.Architecture {
	a := model.Tiny(512)
	a.MaxPositions = 4096
	return a
}

func longRow(a model.Architecture, n int) model.Row {
	r := model.Row{Tokens: make([]int32, n)}
	for i := range r.Tokens {
		r.Tokens[i] = int32((7*i + i*i) % a.VocabSize)
	}
	return r
}

// heap returns the size of live heap objects, in MB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

func BenchmarkLongUpdate(b *testing.B) {
	a := longContext()
	for _, n := range []int{250, 1000, 3000} {
		b.Run(fmt.Sprintf("tokens=%d", n), func(b *testing.B) {
			before := heap()
			tr, err := engine("", 0).NewTrainer(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
			require.NoError(b, err)
			defer tr.Close()
			batch := []model.Row{longRow(a, n), longRow(a, n), longRow(a, n), longRow(a, n)}
			for b.Loop() {
				_, err := tr.Update(b.Context(), batch, likelihood(4*n), adamW())
				require.NoError(b, err)
			}
			b.ReportMetric(float64(4*n*b.N)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(heap()-before, "MB")
		})
	}
}

// One iteration is 100 new tokens after a prompt.
func BenchmarkLongDecode(b *testing.B) {
	a := longContext()
	for _, n := range []int{250, 1000, 3000} {
		b.Run(fmt.Sprintf("prompt=%d", n), func(b *testing.B) {
			before := heap()
			d, err := engine("", 0).NewDecoder(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
			require.NoError(b, err)
			defer d.Close()
			for b.Loop() {
				_, err := d.Decode(b.Context(), model.DecodeRequest{Prompt: longRow(a, n).Tokens, MaxTokens: 100, Temperature: 1})
				require.NoError(b, err)
			}
			b.ReportMetric(float64((n+100)*b.N)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(heap()-before, "MB")
		})
	}
}
