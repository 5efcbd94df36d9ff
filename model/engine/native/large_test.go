package native_test

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// smolLM2 returns the shape of SmolLM2-135M, with room for 512 positions.
func smolLM2() model.Architecture {
	return model.Architecture{
		VocabSize: 49152, HiddenSize: 576, Layers: 30, Heads: 9, KVHeads: 3, HeadDim: 64, FeedForward: 1536,
		MaxPositions: 512, RopeTheta: 100000, NormEpsilon: 1e-5, Tied: true,
	}
}

// qwen05B returns the shape of Qwen2.5-0.5B, with room for 512 positions.
func qwen05B() model.Architecture {
	return model.Architecture{
		VocabSize: 151936, HiddenSize: 896, Layers: 24, Heads: 14, KVHeads: 2, HeadDim: 64, FeedForward: 4864,
		MaxPositions: 512, RopeTheta: 1e6, NormEpsilon: 1e-6, Tied: true, QKVBias: true,
	}
}

// residentMB returns a line of /proc/self/status in MB: VmRSS, or its peak VmHWM. It
// returns 0 if there is no such file.
func residentMB(line string) float64 {
	text, _ := os.ReadFile("/proc/self/status")
	for _, l := range strings.Split(string(text), "\n") {
		var kB float64
		if n, _ := fmt.Sscanf(l, line+": %f kB", &kB); n == 1 {
			return kB / 1024
		}
	}
	return 0
}

// startPeak returns free memory to the system and resets the peak.
func startPeak(b *testing.B) {
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	b.ReportMetric(residentMB("VmRSS"), "MB-before")
}

func batchOf(a model.Architecture, rows, tokens int) []model.Row {
	batch := make([]model.Row, rows)
	for i := range batch {
		batch[i] = longRow(a, tokens)
		batch[i].Tokens[0] = int32(i)
	}
	return batch
}

// The peak covers the whole process: a trainer, but not the weights that it was made
// from.
func BenchmarkSmolLM2Update(b *testing.B) {
	tr, a := largeTrainer(b), smolLM2()
	batch := batchOf(a, 16, 128)
	for b.Loop() {
		_, err := tr.Update(b.Context(), batch, likelihood(16*127), adamW())
		require.NoError(b, err)
	}
	b.ReportMetric(float64(16*127*b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(residentMB("VmHWM"), "MB-peak")
}

func BenchmarkSmolLM2Score(b *testing.B) {
	tr, a := largeTrainer(b), smolLM2()
	batch := batchOf(a, 16, 128)
	for b.Loop() {
		score(b, tr, batch)
	}
	b.ReportMetric(float64(16*127*b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(residentMB("VmHWM"), "MB-peak")
}

func largeTrainer(b *testing.B) model.Trainer {
	b.Helper()
	a := smolLM2()
	return benchmarkTrainer(b, model.Checkpoint{Architecture: a, Weights: a.Init(1)})
}

func benchmarkTrainer(b *testing.B, c model.Checkpoint) model.Trainer {
	b.Helper()
	tr, err := engine("", 0).NewTrainer(c)
	require.NoError(b, err)
	b.Cleanup(tr.Close)
	startPeak(b)
	return tr
}

// The adapter has rank 8 and covers all linear layers; the peak includes its base.
func BenchmarkSmolLM2UpdateLoRA(b *testing.B) { benchmarkLoRA(b, smolLM2(), model.F32) }

func BenchmarkSmolLM2UpdateLoRABF16(b *testing.B) { benchmarkLoRA(b, smolLM2(), model.BF16) }

func BenchmarkSmolLM2UpdateLoRAQ8(b *testing.B) { benchmarkLoRA(b, smolLM2(), model.Q8_0) }

func BenchmarkQwen05BUpdateLoRA(b *testing.B) { benchmarkLoRA(b, qwen05B(), model.F32) }

func BenchmarkQwen05BUpdateLoRABF16(b *testing.B) { benchmarkLoRA(b, qwen05B(), model.BF16) }

func BenchmarkQwen05BUpdateLoRAQ8(b *testing.B) { benchmarkLoRA(b, qwen05B(), model.Q8_0) }

// over returns a checkpoint of an adapter over a random base, which is held in precision
// p.
func over(a model.Architecture, p model.Precision) model.Checkpoint {
	numbers := model.LoRA{Rank: 8, Alpha: 16, Targets: model.LoRATargets(), BasePrecision: p}
	shared := &model.Base{Digest: "large", Architecture: a, Each: model.EachOf(func() (model.Weights, error) { return a.Init(1), nil })}
	return model.Checkpoint{Architecture: a, Adapter: &model.Adapter{LoRA: numbers, Base: shared}, Weights: a.InitAdapter(numbers, 1)}
}

func benchmarkLoRA(b *testing.B, a model.Architecture, p model.Precision) {
	tr := benchmarkTrainer(b, over(a, p))
	batch := batchOf(a, 16, 128)
	for b.Loop() {
		_, err := tr.Update(b.Context(), batch, likelihood(16*127), adamW())
		require.NoError(b, err)
	}
	b.ReportMetric(float64(16*127*b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(residentMB("VmHWM"), "MB-peak")
}

// A step of GRPO: 8 prompts of 57 tokens, each with 8 replies of 12.
func BenchmarkSmolLM2UpdateLoRAGroups(b *testing.B) {
	a := smolLM2()
	tr, batch := benchmarkTrainer(b, over(a, model.F32)), groupsOf(a)
	replies := func(_ int, _, _ []float32, gradient, _ []float32) {
		for i := 56; i < len(gradient); i++ {
			gradient[i] = -1.0 / (64 * 12)
		}
	}
	for _, share := range []bool{true, false} {
		b.Run(fmt.Sprintf("shared=%v", share), func(b *testing.B) {
			if !share {
				native.ShareNothing(tr)
			}
			began := processorTime(b)
			for b.Loop() {
				_, err := tr.Update(b.Context(), batch, replies, adamW())
				require.NoError(b, err)
			}
			b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N), "processor-s/op")
			b.ReportMetric(float64(64*68*b.N)/b.Elapsed().Seconds(), "tokens/s")
			b.ReportMetric(residentMB("VmHWM"), "MB-peak")
		})
	}
}

// A step of GRPO with prompts of 200 tokens and 8 replies of 20 to each. In five of eight
// groups all attempts got the same reward, so they have no gradient.
func BenchmarkQwen05BUpdateLoRAFlatGroups(b *testing.B) {
	a := qwen05B()
	tr, batch := benchmarkTrainer(b, over(a, model.BF16)), batchOf(a, 64, 200+20)
	needed := make([]bool, 219)
	for i := 199; i < 219; i++ {
		needed[i] = true
	}
	for i := range batch {
		batch[i].Tokens[0] = int32(i / 8)
		for j := range 20 {
			batch[i].Tokens[200+j] = int32(i + j*j)
		}
	}
	for _, v := range []struct {
		name   string
		learn  int // groups
		needed []bool
	}{{"all", 8, nil}, {"replies", 8, needed}, {"replies-of-three-groups", 3, needed}} {
		b.Run(v.name, func(b *testing.B) {
			rows := slices.Clone(batch)
			for i := range rows {
				rows[i].Needed = v.needed
			}
			replies := func(row int, _, _ []float32, gradient, _ []float32) {
				for i := 199; row/8 < v.learn && i < len(gradient); i++ {
					gradient[i] = -1.0 / (64 * 20)
				}
			}
			began := processorTime(b)
			for b.Loop() {
				_, err := tr.Update(b.Context(), rows, replies, adamW())
				require.NoError(b, err)
			}
			b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N), "processor-s/op")
			b.ReportMetric(residentMB("VmHWM"), "MB-peak")
		})
	}
}

// One iteration is 32 new tokens for each of the requests, after a prompt of 64.
func BenchmarkSmolLM2Decode(b *testing.B) { benchmarkLargeDecode(b, whole(smolLM2())) }

func BenchmarkSmolLM2DecodeLoRA(b *testing.B) { benchmarkLargeDecode(b, over(smolLM2(), model.F32)) }

func BenchmarkSmolLM2DecodeLoRABF16(b *testing.B) {
	benchmarkLargeDecode(b, over(smolLM2(), model.BF16))
}

func BenchmarkSmolLM2DecodeLoRAQ8(b *testing.B) {
	benchmarkLargeDecode(b, over(smolLM2(), model.Q8_0))
}

func BenchmarkQwen05BDecode(b *testing.B) { benchmarkLargeDecode(b, whole(qwen05B())) }

func whole(a model.Architecture) model.Checkpoint {
	return model.Checkpoint{Architecture: a, Weights: a.Init(1)}
}

func benchmarkLargeDecode(b *testing.B, c model.Checkpoint) {
	a := c.Architecture
	d, err := engine("", 0).NewDecoder(c)
	require.NoError(b, err)
	defer d.Close()
	for _, n := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			startPeak(b)
			for b.Loop() {
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() {
						_, err := d.Decode(b.Context(), model.DecodeRequest{
							Prompt: longRow(a, 64).Tokens, MaxTokens: 32, Temperature: 1, Seed: uint64(i),
						})
						if err != nil {
							b.Error(err)
						}
					})
				}
				all.Wait()
			}
			b.ReportMetric(float64(n*32*b.N)/b.Elapsed().Seconds(), "new-tokens/s")
			b.ReportMetric(residentMB("VmHWM"), "MB-peak")
		})
	}
}

// groupsOf returns the rows of 8 prompts of 57 tokens, each with 8 replies of 12.
func groupsOf(a model.Architecture) []model.Row {
	batch := batchOf(a, 64, 57+12)
	for i := range batch {
		batch[i].Tokens[0] = int32(i / 8)
		for j := range 12 {
			batch[i].Tokens[57+j] = int32(i + j*j)
		}
	}
	return batch
}

// The benchmark compares the rate of an update of an adapter, of which only the products
// with the base's matrices count, with the rate of the same products alone. Both are per
// second of processor time, which other processes don't change.
func BenchmarkSmolLM2UpdateLoRABesideItsProducts(b *testing.B) {
	a := smolLM2()
	tr, batch := benchmarkTrainer(b, over(a, model.F32)), batchOf(a, 16, 128)
	var update, products time.Duration
	for b.Loop() {
		began := processorTime(b)
		_, err := tr.Update(b.Context(), batch, likelihood(16*127), adamW())
		require.NoError(b, err)
		between := processorTime(b)
		update += between - began
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { multiply(a, 254) })
		}
		all.Wait()
		products += processorTime(b) - between
	}
	rate := func(positions int, took time.Duration) float64 {
		numbers := 0.0
		for _, m := range shapesOf(a) {
			numbers += float64(m[0] * m[1] * m[2])
		}
		return 4 * float64(positions*b.N) * numbers / took.Seconds() / 1e9
	}
	b.ReportMetric(rate(16*127, update), "update-GFLOP/s")
	b.ReportMetric(rate(2*254, products), "products-GFLOP/s")
	b.ReportMetric(100*rate(16*127, update)/rate(2*254, products), "%-of-products")
}

// shapesOf returns the shapes of a model's matrices: how many there are of a kind, and
// their numbers of rows (out) and columns (in).
func shapesOf(a model.Architecture) [][3]int {
	heads := a.Heads * a.HeadDim
	return [][3]int{
		{a.Layers, heads + 2*a.KVHeads*a.HeadDim, a.HiddenSize}, {a.Layers, a.HiddenSize, heads},
		{a.Layers, 2 * a.FeedForward, a.HiddenSize}, {a.Layers, a.HiddenSize, a.FeedForward}, {1, a.VocabSize, a.HiddenSize},
	}
}

// multiply makes the forward and the backward product of each of a model's matrices.
func multiply(a model.Architecture, rows int) {
	k := kernel.Best()
	for _, m := range shapesOf(a) {
		packed, in, out := make([]float32, m[1]*m[2]), make([]float32, rows*m[2]), make([]float32, rows*m[1])
		for range m[0] {
			k.MatMulPacked(out, m[1], in, m[2], packed, rows, m[1], m[2], false)
			k.MatMulPacked(in, m[2], out, m[1], packed, rows, m[2], m[1], false)
		}
	}
}

// processorTime returns the processor time that the process has used so far, to the
// hundredth of a second.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		b.Skip("no processor time:", err)
	}
	fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(b, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(b, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}
