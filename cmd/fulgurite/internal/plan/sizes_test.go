package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// smol returns the architecture of SmolLM2-135M.
func smol() model.Architecture {
	return model.Architecture{
		VocabSize: 49152, HiddenSize: 576, Layers: 30, Heads: 9, KVHeads: 3, HeadDim: 64,
		FeedForward: 1536, MaxPositions: 8192, RopeTheta: 100000, NormEpsilon: 1e-5, Tied: true,
	}
}

func TestSizesOfALanguageModel(t *testing.T) {
	t.Parallel()
	z := newSizes(spec.Spec{}, smol(), nil, 20, 0)
	require.Equal(t, int64(538_060_032), z.Weights)
	require.Equal(t, 3*z.Weights, z.Version)
	require.Equal(t, 21, z.Kept)
	require.Equal(t, 61*z.Weights, z.Disk, "version 0 has no moments")
	require.Equal(t, int64(2*30*3*64*4), z.Token)
	require.InDelta(t, 2.5e9, z.Trainer, 0.1e9)
	require.Equal(t, 2*z.Weights, z.Sampler)
	require.InDelta(t, 256<<20, z.Cache, 2<<20)

	lines := z.lines()
	require.Equal(t, "1.61 GB a version (weights 538 MB, the optimizer's moments 1.08 GB); at most 21 are kept: 32.8 GB", lines[0].text)
	require.Contains(t, lines[1].text, "46.1 kB for each token")
	require.Contains(t, lines[1].text, "up to 268 MB for those that go on from earlier ones")
}

func TestVersionsOfAnAdapterShareTheirBase(t *testing.T) {
	t.Parallel()
	s := spec.Spec{Model: spec.Model{LoRA: &spec.LoRA{}}}.WithDefaults()
	s.Critic = nil
	z := newSizes(s, smol(), nil, 20, 0)
	require.Equal(t, int64(538_060_032), z.Base)
	require.Less(t, z.Version, int64(30_000_000))
	require.InDelta(t, 538e6, z.Packed, 1e6)
	require.Equal(t, z.Base+z.Packed+z.Weights+20*z.Version, z.Disk)
	require.Less(t, z.Memory(), int64(2_500_000_000))
	require.Contains(t, z.lines()[0].text, "with the base of 538 MB that they share, and its packed form of 538 MB, which processes map")

	s.Model.Engine, s.Sampling.Engine = spec.EngineTorch, spec.EngineTorch
	require.Zero(t, newSizes(s, smol(), nil, 20, 0).Packed, "the program of engine torch reads the base itself")
	s.Sampling.Engine = spec.EngineNative
	require.NotZero(t, newSizes(s, smol(), nil, 20, 0).Packed)
}

func TestABaseOfFewerBitsTakesLess(t *testing.T) {
	t.Parallel()
	of := func(precision string) Sizes {
		s := spec.Spec{Model: spec.Model{LoRA: &spec.LoRA{BasePrecision: precision}}}.WithDefaults()
		s.Critic = nil
		return newSizes(s, smol(), nil, 20, 0)
	}
	full, bf16, q8 := of(""), of("bf16"), of("q8_0")
	require.Equal(t, int64(538_060_032), full.Base)
	require.Equal(t, int64(269_100_288), bf16.Base)
	require.Equal(t, int64(143_025_408), q8.Base)
	require.Equal(t, full.Trainer-full.Base+bf16.Base, bf16.Trainer)
	require.Equal(t, int64(8_404_992), q8.Trainer-(full.Trainer-full.Base)-q8.Base, "its factors are wider in memory")
	require.Equal(t, full.Disk-full.Base-full.Packed+q8.Base+q8.Packed, q8.Disk)
	require.InDelta(t, 151e6, q8.Packed, 2e6, "as it is held")
}

func TestSizesGrowWithWhatIsKept(t *testing.T) {
	t.Parallel()
	kept := func(k *spec.Keep, lag, steps, gates int) int {
		return newSizes(spec.Spec{Training: spec.Training{Keep: k, Lag: lag}}, smol(), nil, steps, gates).Kept
	}
	require.Equal(t, 101, kept(nil, 0, 100, 0))
	require.Equal(t, 4, kept(&spec.Keep{Last: 2}, 0, 100, 0))
	require.Equal(t, 5, kept(&spec.Keep{Last: 3}, 0, 100, 0))
	require.Equal(t, 6, kept(&spec.Keep{Last: 2}, 2, 100, 0))
	require.Equal(t, 14, kept(&spec.Keep{Last: 2, Every: 10}, 0, 100, 0))
	require.Equal(t, 6, kept(&spec.Keep{Last: 2}, 0, 100, 21))
	require.Equal(t, 25, kept(&spec.Keep{Last: 2, Promoted: true}, 0, 100, 21))
	require.Equal(t, 3, kept(&spec.Keep{Last: 9}, 0, 2, 0), "there are no more than the run makes")

	plain := newSizes(spec.Spec{}, smol(), nil, 20, 0)
	require.Equal(t, 2*plain.Disk, newSizes(spec.Spec{Critic: &spec.Critic{}}, smol(), nil, 20, 0).Disk)
	require.Equal(t, plain.Trainer+plain.Weights, newSizes(spec.Spec{Loss: spec.Loss{KL: &spec.KL{Weight: 0.1, Estimator: credit.KL3}}}, smol(), nil, 20, 0).Trainer)
	require.Zero(t, newSizes(spec.Spec{Sampling: spec.Sampling{Server: &spec.Server{}}}, smol(), nil, 20, 0).Sampler)
}

func TestARunThatDoesNotFitIsRefusedWithNumbersAndKeys(t *testing.T) {
	t.Parallel()
	p := Plan{Sizes: newSizes(spec.Spec{}, smol(), nil, 20, 0)}
	require.NoError(t, p.CheckRoom(40e9, 16e9))
	require.NoError(t, p.CheckRoom(40e9, 0), "a machine whose memory is not known")
	err := p.CheckRoom(30e9, 16e9)
	require.ErrorContains(t, err, "the run needs 32.8 GB of disk for 21 versions of 1.61 GB each, and 30 GB are free")
	require.ErrorContains(t, err, "training.keep")
	err = p.CheckRoom(40e9, 2e9)
	require.ErrorContains(t, err, "and the machine has 2 GB")
	require.ErrorContains(t, err, "model.base")

	p.Spec.Training.Keep = &spec.Keep{Last: 2, Every: 5}
	p.Sizes = newSizes(p.Spec, smol(), nil, 20, 0)
	require.ErrorContains(t, p.CheckRoom(9e9, 0), "keep fewer versions (training.keep)")
}
