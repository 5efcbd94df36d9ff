package serve_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
)

func small() model.Architecture {
	return model.Architecture{
		VocabSize: 40, HiddenSize: 16, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 8,
		FeedForward: 16, MaxPositions: 32, RopeTheta: 10000, NormEpsilon: 1e-6, Tied: true,
	}
}

// vault is a source of what a trainer of the native engine wrote. Version n has the
// weights of seed n; if spoil is not nil, it changes them before they are returned. The
// digest that vault reports is always the same.
type vault struct {
	t     testing.TB
	bare  bool // no canaries
	spoil func(number int, w model.Weights) model.Weights
}

func (v *vault) Load(_ context.Context, id model.VersionID) (model.Checkpoint, string, error) {
	w := small().Init(uint64(id.Number))
	if v.spoil != nil {
		w = v.spoil(id.Number, w)
	}
	return model.Checkpoint{Architecture: small(), Weights: w}, "sha256:right", nil
}

func (v *vault) Canary(ctx context.Context, id model.VersionID) (*model.Canary, error) {
	if v.bare {
		return nil, nil
	}
	e := native.New(native.Options{Threads: 1})
	tr, err := e.NewTrainer(model.Checkpoint{Architecture: small(), Weights: small().Init(uint64(id.Number))})
	require.NoError(v.t, err)
	defer tr.Close()
	c, err := model.NewCanary(ctx, e, small(), tr)
	return &c, err
}

func TestAVersionWithWrongWeightsIsNeitherPublishedNorSampled(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(int, model.Weights) model.Weights{
		"one weight changed": func(_ int, w model.Weights) model.Weights {
			w[2].Data[3] += 1e-3
			return w
		},
		"another version's": func(number int, _ model.Weights) model.Weights { return small().Init(uint64(number + 1)) },
		"two tensors swapped": func(_ int, w model.Weights) model.Weights {
			w[7].Data, w[8].Data = w[8].Data, w[7].Data // gate and up, of one shape
			return w
		},
		"cut to bfloat16": func(_ int, w model.Weights) model.Weights {
			for i, x := range w[7].Data {
				w[7].Data[i] = math.Float32frombits(math.Float32bits(x) &^ 0xffff)
			}
			return w
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &vault{t: t, spoil: spoil}
			s := serve.New(native.New(native.Options{Threads: 1}), v, 2)
			defer s.Close()
			err := s.Publish(t.Context(), version(7))
			require.ErrorIs(t, err, model.ErrWrongWeights)
			require.ErrorContains(t, err, "r@7")
			require.ErrorContains(t, err, "canary 0, token 0")
			_, _, err = s.Sample(t.Context(), version(7), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
			require.ErrorIs(t, err, model.ErrWrongWeights)

			// Nothing of the refused load is kept: with the right weights the version is
			// served.
			v.spoil = nil
			require.NoError(t, s.Publish(t.Context(), version(7)))
			c, _, err := s.Sample(t.Context(), version(7), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
			require.NoError(t, err)
			require.Len(t, c.Tokens, 1)
		})
	}
}

func TestAVersionWithoutCanariesIsServed(t *testing.T) {
	t.Parallel()
	s := serve.New(native.New(native.Options{Threads: 1}), &vault{t: t, bare: true}, 1)
	defer s.Close()
	require.NoError(t, s.Publish(t.Context(), version(7)))
}

// BenchmarkPublish measures the time until a version of the demo's size can be sampled,
// with and without the check.
func BenchmarkPublish(b *testing.B) {
	for name, bare := range map[string]bool{"checked": false, "unchecked": true} {
		b.Run(name, func(b *testing.B) {
			e := native.New(native.Options{})
			d := demo{vault{t: b, bare: bare}, e, nil}
			d.canary(b)
			for b.Loop() {
				s := serve.New(e, d, 1)
				require.NoError(b, s.Publish(b.Context(), version(1)))
				s.Close()
			}
		})
	}
}

// demo holds the model of the demo; its canary is computed beforehand.
type demo struct {
	vault
	engine model.Engine
	kept   *model.Canary
}

func (d *demo) canary(b *testing.B) {
	a := model.Tiny(512)
	tr, err := d.engine.NewTrainer(model.Checkpoint{Architecture: a, Weights: a.Init(1)})
	require.NoError(b, err)
	defer tr.Close()
	c, err := model.NewCanary(b.Context(), d.engine, a, tr)
	require.NoError(b, err)
	if !d.bare {
		d.kept = &c
	}
}

func (d demo) Load(context.Context, model.VersionID) (model.Checkpoint, string, error) {
	a := model.Tiny(512)
	return model.Checkpoint{Architecture: a, Weights: a.Init(1)}, "", nil
}

func (d demo) Canary(context.Context, model.VersionID) (*model.Canary, error) { return d.kept, nil }
