package torch_test

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/decode"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/engine/torch"
)

// tolerance is the allowed difference, in nats, between log-probabilities of sampling and
// of scoring. On a CPU both compute in F32, but in different orders.
const tolerance = 1e-4

func decoder(t *testing.T, e model.Engine, c model.Checkpoint) model.Decoder {
	t.Helper()
	d, err := e.NewDecoder(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// everyOther allows even and odd tokens in turns; every fourth time it allows one token
// only, and at every third place all tokens. It ends the reply at the eleventh token.
type everyOther struct{ n int }

func (c *everyOther) Allowed(set model.TokenSet) bool {
	for token := c.n % 2; token < 13; token += 2 {
		set.Add(int32(token))
		if c.n%4 == 3 {
			break
		}
	}
	return c.n%3 != 0
}

func (c *everyOther) Accept(int32) bool {
	c.n++
	return c.n == 11
}

// requests returns requests of every kind. Each call makes new constraints.
func requests() []model.DecodeRequest {
	var all []model.DecodeRequest
	for i, prompt := range [][]int32{{1, 5, 2, 9}, {4}, {7, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 1}, {1, 5, 2, 9}} {
		for j, temperature := range []float64{1, 0, 0.6, 2} {
			r := model.DecodeRequest{Prompt: prompt, MaxTokens: 20, Temperature: temperature, Seed: 1<<63 + uint64(5*i+j), Stop: []int32{11}}
			if j == 2 {
				r.TopP = 0.7
			}
			all = append(all, r)
			if j > 1 {
				r.Constraint = &everyOther{}
				all = append(all, r)
			}
		}
	}
	all[0].MaxTokens = 100 // more than the model has room for
	return all
}

// together sends all requests at once.
func together(t *testing.T, d model.Decoder, all []model.DecodeRequest) []model.Completion {
	t.Helper()
	out, errs := make([]model.Completion, len(all)), make([]error, len(all))
	var wait sync.WaitGroup
	for i, r := range all {
		wait.Go(func() { out[i], errs[i] = d.Decode(t.Context(), r) })
	}
	wait.Wait()
	for i, err := range errs {
		require.NoError(t, err, "request %d", i)
	}
	return out
}

func requireSame(t *testing.T, want, got model.Completion, message string) {
	t.Helper()
	require.Equal(t, want.Tokens, got.Tokens, message)
	require.Equal(t, want.Finish, got.Finish, message)
	require.Equal(t, want.Forced, got.Forced, message)
	require.InDeltaSlice(t, want.Logprobs, got.Logprobs, tolerance, message)
}

func models() map[string]model.Checkpoint {
	base := start(small())
	return map[string]model.Checkpoint{
		"whole": base, "tokens": adapter(base, tokens(), 5), "adapter": adapter(base, model.LoRA{Rank: 3, Alpha: 6, Targets: model.LoRATargets()}, 3),
		"other adapter": adapter(base, model.LoRA{Rank: 2, Alpha: 2, Targets: []string{"v_proj", "up_proj"}}, 4),
	}
}

// One engine serves all of these tests, because starting the program takes seconds. The
// last test kills the program.
func TestTheProgramSamples(t *testing.T) {
	t.Parallel()
	e := engine(t, torch.Options{})
	for _, part := range []struct {
		claim string
		test  func(*testing.T, *torch.Engine)
	}{
		{"replies are those of the engine native, alone or together", repliesAreThoseOfTheEngineNative},
		{"log-probabilities are the trainer's, while others are trained", logProbabilitiesAreTheTrainers},
		{"a decoder reproduces the canary of its version alone", aDecoderReproducesTheCanaryOfItsVersionAlone},
		{"who leaves is let go and the others go on", whoLeavesIsLetGo},
		{"requests that cannot be are refused by name", requestsThatCannotBeAreRefused},
		{"a program that is killed in a reply is lost and says the same again", aProgramThatIsKilledSaysTheSameAgain},
	} {
		t.Run(part.claim, func(t *testing.T) { part.test(t, e) })
	}
}

// The same noise on the same logits gives the same tokens, whatever else is in the batch and
// however many fit into one.
func repliesAreThoseOfTheEngineNative(t *testing.T, e *torch.Engine) {
	few, other := engine(t, torch.Options{Sequences: 3, Tokens: 5}), native.New(native.Options{Threads: 1})
	for name, c := range models() {
		t.Run(name, func(t *testing.T) {
			want := together(t, decoder(t, other, c), requests())
			forced := 0
			for i, got := range together(t, decoder(t, few, c), requests()) {
				requireSame(t, want[i], got, fmt.Sprintf("request %d, three at a time", i))
				forced += len(got.Forced)
			}
			require.Positive(t, forced)
			d := decoder(t, e, c)
			for i, got := range together(t, d, requests()) {
				requireSame(t, want[i], got, fmt.Sprintf("request %d of all", i))
			}
			for i, r := range requests() {
				got, err := d.Decode(t.Context(), r)
				require.NoError(t, err)
				requireSame(t, want[i], got, fmt.Sprintf("request %d alone", i))
			}
		})
	}
}

// Versions are sampled and trained by turns. The log-probabilities of each reply are
// those that the trainer of its own version computes for its tokens.
func logProbabilitiesAreTheTrainers(t *testing.T, e *torch.Engine) {
	var wait sync.WaitGroup
	for name, c := range models() {
		tr, d := trainer(t, e, c), decoder(t, e, c)
		busy := trainer(t, e, c)
		wait.Go(func() {
			for range 3 {
				_, err := busy.Update(t.Context(), rows(), slopes, adamW())
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
		wait.Go(func() {
			for i, r := range requests() {
				if r.Constraint != nil || r.TopP > 0 || r.Temperature == 0 {
					continue
				}
				got, err := d.Decode(t.Context(), r)
				if err != nil {
					t.Errorf("%s, request %d: %v", name, i, err)
					return
				}
				row := model.Row{Tokens: append(append([]int32{}, r.Prompt...), got.Tokens...), Temperature: r.Temperature}
				want, _, err := tr.Score(t.Context(), []model.Row{row})
				if err != nil {
					t.Errorf("%s, request %d: %v", name, i, err)
					return
				}
				for j, x := range want[0][len(r.Prompt)-1:] {
					if d := x - got.Logprobs[j]; d > tolerance || d < -tolerance {
						t.Errorf("%s, request %d, token %d: %v sampled, %v scored", name, i, j, got.Logprobs[j], x)
					}
				}
			}
		})
	}
	wait.Wait()
}

func aDecoderReproducesTheCanaryOfItsVersionAlone(t *testing.T, e *torch.Engine) {
	all := models()
	tr := trainer(t, e, all["adapter"])
	canary, err := model.NewCanary(t.Context(), e, small(), tr)
	require.NoError(t, err)
	require.NoError(t, canary.Verify(t.Context(), e, decoder(t, e, all["adapter"])))
	require.ErrorIs(t, canary.Verify(t.Context(), e, decoder(t, e, all["other adapter"])), model.ErrWrongWeights)
}

func whoLeavesIsLetGo(t *testing.T, e *torch.Engine) {
	a := small()
	a.MaxPositions = 1 << 20
	d := decoder(t, e, start(a))
	ctx, leave := context.WithCancel(t.Context())
	received := 0
	_, err := d.Decode(ctx, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1, Emit: func(int32, float32) {
		if received++; received == 20 {
			leave()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	var tokens []int32
	got, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{2}, MaxTokens: 40, Temperature: 1, Emit: func(token int32, _ float32) {
		tokens = append(tokens, token)
	}})
	require.NoError(t, err)
	require.Equal(t, got.Tokens, tokens)

	closing := make(chan error)
	begun := make(chan struct{})
	var once sync.Once
	go func() {
		_, err := d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1 << 19, Temperature: 1, Emit: func(int32, float32) {
			once.Do(func() { close(begun) })
		}})
		closing <- err
	}()
	<-begun
	d.Close()
	require.ErrorIs(t, <-closing, decode.ErrClosed)
	_, err = d.Decode(t.Context(), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
	require.ErrorIs(t, err, decode.ErrClosed)
}

func aProgramThatIsKilledSaysTheSameAgain(t *testing.T, e *torch.Engine) {
	c := models()["adapter"]
	d := decoder(t, e, c)
	r := model.DecodeRequest{Prompt: []int32{1, 5, 2}, MaxTokens: 30, Temperature: 1, Seed: 3}
	want, err := d.Decode(t.Context(), r)
	require.NoError(t, err)
	killed := r
	var once sync.Once
	killed.Emit = func(int32, float32) { once.Do(func() { require.NoError(t, syscall.Kill(e.PID(), syscall.SIGKILL)) }) }
	_, err = d.Decode(t.Context(), killed)
	require.ErrorIs(t, err, model.ErrEngineLost)
	_, err = d.Decode(t.Context(), r)
	require.ErrorIs(t, err, model.ErrEngineLost, "it stays lost")
	got, err := decoder(t, e, c).Decode(t.Context(), r)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(want, got))
}

func requestsThatCannotBeAreRefused(t *testing.T, e *torch.Engine) {
	d := decoder(t, e, start(small()))
	good := model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1, Temperature: 1}
	for want, spoil := range map[string]func(*model.DecodeRequest){
		"no tokens":                  func(r *model.DecodeRequest) { r.Prompt = nil },
		"token 0 is 13":              func(r *model.DecodeRequest) { r.Prompt = []int32{13} },
		"prompt too long: 40 tokens": func(r *model.DecodeRequest) { r.Prompt = make([]int32, 40) },
		"at most 0 tokens":           func(r *model.DecodeRequest) { r.MaxTokens = 0 },
		"temperature is -1":          func(r *model.DecodeRequest) { r.Temperature = -1 },
		"top_p is 1.5":               func(r *model.DecodeRequest) { r.TopP = 1.5 },
		"allows no token":            func(r *model.DecodeRequest) { r.Constraint = nothing{} },
	} {
		r := good
		spoil(&r)
		_, err := d.Decode(t.Context(), r)
		require.ErrorContains(t, err, want)
	}
	_, err := d.(model.Scorer).Score(t.Context(), []int32{1}, make([]int32, 40))
	require.ErrorIs(t, err, model.ErrPromptTooLong)
	_, err = d.Decode(t.Context(), good)
	require.NoError(t, err)
}

// nothing allows no token.
type nothing struct{}

func (nothing) Allowed(model.TokenSet) bool { return true }
func (nothing) Accept(int32) bool           { return false }
