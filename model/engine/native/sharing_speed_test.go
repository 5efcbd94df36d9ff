package native_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
)

// The requests are the samples of a step of GRPO: 8 prompts, each with 8 replies of 32
// tokens. The time includes the prompts.
func BenchmarkSmolLM2DecodeLoRAGroups(b *testing.B) {
	for _, tokens := range []int{57, 512} {
		benchmarkSharing(b, fmt.Sprintf("prompt=%d", tokens), 8*8, tokens, 1)
	}
}

// The requests are dialogs: 8 prompts of 128 tokens, each with 4 dialogs of 3 turns. A
// turn is a reply of 32 tokens and an answer of 32.
func BenchmarkSmolLM2DecodeLoRADialogs(b *testing.B) { benchmarkSharing(b, "turns=3", 8*4, 128, 3) }

// benchmarkSharing runs dialogs that begin with 8 different prompts, with and without
// sharing of prefixes.
func benchmarkSharing(b *testing.B, name string, dialogs, tokens, turns int) {
	a := smolLM2()
	a.MaxPositions = 1024
	e, c := engine("", 0), over(a, model.F32)
	for _, share := range []bool{true, false} {
		b.Run(fmt.Sprintf("%s/shared=%v", name, share), func(b *testing.B) {
			open := e.NewDecoder
			if !share {
				open = func(c model.Checkpoint) (model.Decoder, error) { return native.NewDecoderWithoutSharing(e, c) }
			}
			d, err := open(c)
			require.NoError(b, err)
			defer d.Close()
			startPeak(b)
			began, steps := processorTime(b), int32(0)
			for b.Loop() {
				steps++ // each step has its own prompts
				var all sync.WaitGroup
				for i := range dialogs {
					prompt := longRow(a, tokens).Tokens
					prompt[0], prompt[1] = int32(i*8/dialogs), steps
					all.Go(func() { talk(b, d, prompt, turns, uint64(i)) })
				}
				all.Wait()
			}
			b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N), "processor-s/op")
			b.ReportMetric(float64(dialogs*turns*32*b.N)/b.Elapsed().Seconds(), "new-tokens/s")
			b.ReportMetric(residentMB("VmHWM"), "MB-peak")
		})
	}
}

// talk asks for a reply, and then for replies to what follows it.
func talk(b *testing.B, d model.Decoder, prompt []int32, turns int, seed uint64) {
	for turn := range turns {
		c, err := d.Decode(b.Context(), model.DecodeRequest{Prompt: prompt, MaxTokens: 32, Temperature: 1, Seed: seed + uint64(turn)<<32})
		if err != nil {
			b.Error(err)
			return
		}
		prompt = slices.Concat(prompt, c.Tokens, c.Tokens)
	}
}
