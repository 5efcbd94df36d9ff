package remote_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/sampler/remote"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
)

// The guarantees of a sampler hold in this process and behind HTTP.
func eachSampler(t *testing.T, f func(t *testing.T, s model.Sampler)) {
	for name, behind := range map[string]bool{"serve": false, "remote": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve.New(native.New(native.Options{Threads: 1}), source{}, 1)
			s.Constrain = constrain
			t.Cleanup(s.Close)
			if behind {
				f(t, connect(t, remote.NewServer(s, nil), remote.Options{}))
				return
			}
			f(t, s)
		})
	}
}

// source holds one small model for all versions, with room for long replies.
type source struct{}

func (source) Load(context.Context, model.VersionID) (model.Checkpoint, string, error) {
	a := model.Tiny(64)
	a.MaxPositions = 1 << 20
	return model.Checkpoint{Architecture: a, Weights: a.Init(3)}, "sha256:weights", nil
}

func (source) Canary(context.Context, model.VersionID) (*model.Canary, error) { return nil, nil }

// parity allows even and odd tokens in turns, and every fourth time only one. With
// a stop text it ends the reply at the ninth token.
type parity struct {
	form model.Form
	n    int
}

func (p *parity) Allowed(set model.TokenSet) bool {
	for token := p.n % 2; token < 64; token += 2 {
		set.Add(int32(token))
		if p.n%4 == 3 {
			break
		}
	}
	return p.form.Masks()
}

func (p *parity) Accept(int32) bool {
	p.n++
	return p.n == 9 && len(p.form.Stop) > 0
}

func constrain(f model.Form) (model.Constraint, error) {
	if f.Codec != "parity" {
		return nil, context.DeadlineExceeded // any error
	}
	return &parity{form: f}, nil
}

func schema() *model.Form { return &model.Form{Codec: "parity", Schema: json.RawMessage(`{}`)} }

func everyKindOfRequest() []model.DecodeRequest {
	var all []model.DecodeRequest
	for i, form := range []*model.Form{
		nil, schema(), {Codec: "parity", Stop: []string{"END", "\n"}},
		{Codec: "parity", Call: true, Tools: []model.FormTool{{Name: "f", Parameters: json.RawMessage(`{"type":"object"}`)}}, Stop: []string{"x"}},
	} {
		for _, topP := range []float64{0, 0.5, 1} {
			for _, temperature := range []float64{0, 1} {
				all = append(all, model.DecodeRequest{
					Prompt: []int32{5, 9, 1}, MaxTokens: 12, Temperature: temperature, TopP: topP, Form: form,
					Stop: []int32{63}, Seed: rand.New(rand.NewPCG(uint64(i), 1)).Uint64(),
				})
			}
		}
	}
	return all
}

func TestEveryRequestIsAnsweredAlikeHereAndThere(t *testing.T) {
	t.Parallel()
	direct := serve.New(native.New(native.Options{Threads: 1}), source{}, 1)
	direct.Constrain = constrain
	t.Cleanup(direct.Close)
	eachSampler(t, func(t *testing.T, s model.Sampler) {
		forced := 0
		for _, r := range everyKindOfRequest() {
			want, digest, err := direct.Sample(t.Context(), version(), r)
			require.NoError(t, err)
			got, weights, err := s.Sample(t.Context(), version(), r)
			require.NoError(t, err)
			require.Equal(t, digest, weights)
			require.Equal(t, want, got)
			for _, f := range got.Forced {
				if f {
					forced++
				}
			}
			require.True(t, r.Form == nil || len(r.Form.Stop) == 0 || len(got.Tokens) <= 9)
		}
		require.Positive(t, forced)
	})
}

func TestWhatIsHeardIsTheReply(t *testing.T) {
	t.Parallel()
	eachSampler(t, func(t *testing.T, s model.Sampler) {
		for _, r := range everyKindOfRequest() {
			want, _, err := s.Sample(t.Context(), version(), r)
			require.NoError(t, err)
			var received model.Completion
			r.Emit = func(token int32, logprob float32) {
				received.Tokens, received.Logprobs = append(received.Tokens, token), append(received.Logprobs, logprob)
			}
			got, weights, err := s.Sample(t.Context(), version(), r)
			require.NoError(t, err)
			require.Equal(t, "sha256:weights", weights)
			require.Equal(t, want, got)
			require.Equal(t, got.Tokens, received.Tokens)
			require.Equal(t, bits(got.Logprobs), bits(received.Logprobs))
		}
	})
}

// A reply that would take hours is received from its first token on, and nothing is
// received after the listener has left.
func TestTokensAreHeardAsTheyAreSampled(t *testing.T) {
	t.Parallel()
	eachSampler(t, func(t *testing.T, s model.Sampler) {
		ctx, cancel := context.WithCancel(t.Context())
		received, returned := 0, make(chan struct{})
		_, _, err := s.Sample(ctx, version(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1, Emit: func(int32, float32) {
			select {
			case <-returned:
				panic("a token was received after Sample had returned")
			default:
			}
			if received++; received == 3 {
				cancel()
			}
		}})
		close(returned)
		require.ErrorIs(t, err, context.Canceled)
		require.GreaterOrEqual(t, received, 3)
	})
}

func TestWhatCannotBeSampledIsNoFault(t *testing.T) {
	t.Parallel()
	eachSampler(t, func(t *testing.T, s model.Sampler) {
		for _, emit := range []func(int32, float32){nil, func(int32, float32) { t.Error("nothing was sampled") }} {
			for want, r := range map[error]model.DecodeRequest{
				model.ErrForm:          {Prompt: []int32{1}, MaxTokens: 9, Form: &model.Form{Codec: "klingon", Call: true}},
				model.ErrPromptTooLong: {Prompt: make([]int32, 1<<20), MaxTokens: 9},
			} {
				r.Emit = emit
				_, _, err := s.Sample(t.Context(), version(), r)
				require.ErrorIs(t, err, want)
				require.False(t, remote.IsFault(err), "it would fail again")
			}
		}
	})
}
