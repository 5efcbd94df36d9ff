package serve_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native"
	"github.com/fulgurite/fulgurite/model/sampler/serve"
)

// even allows even tokens if the form masks, and ends at the fourth token if it
// stops.
type even struct {
	form model.Form
	n    int
}

func (e *even) Allowed(set model.TokenSet) bool {
	for token := int32(0); token < 40; token += 2 {
		set.Add(token)
	}
	return e.form.Masks()
}

func (e *even) Accept(int32) bool {
	e.n++
	return e.n == 4 && len(e.form.Stop) > 0
}

var errUnspeakable = errors.New("unspeakable")

func constrain(f model.Form) (model.Constraint, error) {
	if f.Codec != "even" {
		return nil, errUnspeakable
	}
	return &even{form: f}, nil
}

func TestAFormIsObeyed(t *testing.T) {
	t.Parallel()
	s := serve.New(native.New(native.Options{Threads: 1}), &vault{t: t, bare: true}, 1)
	s.Constrain = constrain
	defer s.Close()
	ask := func(form *model.Form) model.Completion {
		c, _, err := s.Sample(t.Context(), version(1), model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 9, Temperature: 1, Form: form})
		require.NoError(t, err)
		return c
	}
	odd := func(tokens []int32) (n int) {
		for _, token := range tokens {
			n += int(token % 2)
		}
		return n
	}
	free := ask(nil)
	require.Positive(t, odd(free.Tokens))
	require.Equal(t, free, ask(&model.Form{Codec: "klingon"}), "a form that asks for nothing needs no codec")
	schema := &model.Form{Codec: "even", Schema: json.RawMessage(`{}`)}
	require.Zero(t, odd(ask(schema).Tokens))
	require.Equal(t, ask(schema), ask(schema), "each request has a constraint of its own")
	require.Zero(t, odd(ask(&model.Form{Codec: "even", Call: true}).Tokens))
	stopped := ask(&model.Form{Codec: "even", Stop: []string{"x"}})
	require.Equal(t, "stop", stopped.Finish)
	require.Equal(t, free.Tokens[:4], stopped.Tokens)
	require.Equal(t, free.Logprobs[:4], stopped.Logprobs)
}

func TestAFormThatCannotBeHeldIsRefused(t *testing.T) {
	t.Parallel()
	s := serve.New(&engine{}, &source{}, 1)
	defer s.Close()
	for _, form := range []model.Form{{Codec: "klingon", Call: true}, {Codec: "klingon", Stop: []string{"x"}}} {
		s.Constrain = nil
		_, _, err := s.Sample(t.Context(), version(1), model.DecodeRequest{Form: &form})
		require.ErrorIs(t, err, model.ErrForm)
		s.Constrain = constrain
		_, _, err = s.Sample(t.Context(), version(1), model.DecodeRequest{Form: &form})
		require.ErrorIs(t, err, model.ErrForm)
		require.ErrorIs(t, err, errUnspeakable)
		require.ErrorContains(t, err, "klingon")
	}
}
