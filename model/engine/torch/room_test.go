package torch_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// The models of Qwen2.5, with adapters of rank 16 of all linear layers.
var (
	half  = torch.Room{Parameters: 494_032_768, Offered: 8_798_208, Samples: true}
	one   = torch.Room{Parameters: 1_543_714_304, Offered: 18_464_768, Samples: true}
	seven = torch.Room{Parameters: 7_615_616_512, Offered: 40_370_176, Samples: true}
)

func TestAdviceNamesWhatWouldFitInTheOrderOfItsCost(t *testing.T) {
	t.Parallel()
	adapted := func(r torch.Room) torch.Room {
		r.Adapter, r.Offered = r.Offered, 0
		return r
	}
	const lora = "an adapter in place of all weights: model.lora of rank 16 "
	for name, c := range map[string]struct {
		room   torch.Room
		memory int64 // GiB
		held   int64 // MB
		fits   bool
		advice []string
	}{
		"0.5B, 8 GB": {half, 8, 7904, false, []string{
			lora + "(1.13 GB)", "training.optimizer.moments: int8 (4.94 GB)", "2 such GPUs: FULGURITE_TORCH_RANKS=2 (5.93 GB)",
			"a model.base of at most about 439 million parameters (3.07 billion with model.lora)",
		}},
		"0.5B, 24 GB": {half, 24, 7904, true, nil},
		"0.5B, 80 GB": {half, 80, 7904, true, nil},
		"1.5B, 8 GB": {one, 8, 24699, false, []string{
			lora + "(3.38 GB)", "4 such GPUs: FULGURITE_TORCH_RANKS=4 and sampling.server (6.17 GB)",
			"a model.base of at most about 439 million parameters (3.2 billion with model.lora)",
		}},
		"1.5B, 24 GB": {one, 24, 24699, false, []string{
			lora + "(3.38 GB)", "training.optimizer.moments: int8 (15.4 GB)", "2 such GPUs: FULGURITE_TORCH_RANKS=2 (18.5 GB)",
			"a model.base of at most about 1.38 billion parameters (10.1 billion with model.lora)",
		}},
		"1.5B, 80 GB": {one, 80, 24699, true, nil},
		"7B, 8 GB": {seven, 8, 121849, false, []string{
			"3 such GPUs: FULGURITE_TORCH_RANKS=3 and sampling.server and model.lora (5.72 GB)",
			"a model.base of at most about 439 million parameters (3.37 billion with model.lora)",
		}},
		"7B, 24 GB": {seven, 24, 121849, false, []string{
			lora + "(15.9 GB)", "6 such GPUs: FULGURITE_TORCH_RANKS=6 and sampling.server (20.3 GB)",
			"a model.base of at most about 1.38 billion parameters (10.6 billion with model.lora)",
		}},
		"7B, 80 GB": {seven, 80, 121849, false, []string{
			lora + "(15.9 GB)", "3 such GPUs: FULGURITE_TORCH_RANKS=3 (71.1 GB)",
			"a model.base of at most about 4.67 billion parameters (35.8 billion with model.lora)",
		}},
		"an adapter of 7B, 8 GB": {adapted(seven), 8, 15877, false, []string{
			"3 such GPUs: FULGURITE_TORCH_RANKS=3 and sampling.server (5.72 GB)", "a model.base of at most about 3.37 billion parameters",
		}},
		"1.5B of a type without ranks and int8, 24 GB": {torch.Room{Parameters: one.Parameters, Single: true}, 24, 24699, false, []string{
			"a model.base of at most about 1.38 billion parameters",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.held, c.room.Bytes()/1e6, "MB")
			require.Equal(t, c.fits, c.room.Fits(c.memory<<30))
			if !c.fits {
				require.Empty(t, cmp.Diff(c.advice, c.room.Advice(c.memory<<30)))
			}
		})
	}
}

func TestTheRoomOfAModelFollowsFromItsConfig(t *testing.T) {
	t.Parallel()
	qwen := model.Architecture{
		VocabSize: 151936, HiddenSize: 1536, Layers: 28, Heads: 12, KVHeads: 2, HeadDim: 128, FeedForward: 8960, MaxPositions: 32768, Tied: true, QKVBias: true,
	}
	whole := one
	whole.Samples = false
	require.Equal(t, whole, torch.RoomOf(qwen, nil, model.MomentsF32))
	adapter := torch.Room{Parameters: one.Parameters, Adapter: one.Offered, Int8: true}
	require.Equal(t, adapter, torch.RoomOf(qwen, &model.LoRA{Rank: 16, Targets: model.LoRATargets()}, model.MomentsInt8))
	require.Equal(t, torch.Room{Single: true}, torch.RoomOf(model.Architecture{Config: "{}"}, nil, model.MomentsF32))
}

// The figures are those of the table in docs/gpu.md.
func TestEachOfSeveralGPUsHoldsItsPart(t *testing.T) {
	t.Parallel()
	for ranks, want := range map[int][3]int64{1: {15, 121, 76}, 4: {4, 30, 19}, 8: {2, 15, 9}} {
		adapter, whole := seven, seven
		adapter.Adapter, adapter.Samples, whole.Samples = seven.Offered, false, false
		adapter.Ranks, whole.Ranks = ranks, ranks
		quantized := whole
		quantized.Int8 = true
		require.Equal(t, want, [3]int64{adapter.Bytes() / 1e9, whole.Bytes() / 1e9, quantized.Bytes() / 1e9}, "GB on each of %d", ranks)
	}
}

func TestTheEngineSaysWhatWouldFit(t *testing.T) {
	t.Parallel()
	require.Equal(t, "weights, gradient and moments take 24.7 GB of 25.8 GB, and a batch comes on top; what would fit: "+
		strings.Join(one.Advice(24<<30), "; "), one.TooLittle(24<<30))
	require.Contains(t, half.TooLittle(24<<30), "take 7.9 GB of 25.8 GB, so the rest went to a batch, or to another program on the GPU: give shorter rows")
	require.Contains(t, one.TooLittle(0), "train an adapter (model.lora)")
}
