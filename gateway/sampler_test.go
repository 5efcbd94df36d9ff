package gateway_test

import (
	"context"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// sampleTokens samples a reply of the script, token by token, as far as the request lets
// it: a constraint ends it, and must allow what the script says.
func (s *script) sampleTokens(ctx context.Context, r model.DecodeRequest, reply []int32) (model.Completion, string, error) {
	c := model.Completion{Finish: "length"}
	constraint, err := s.constraint(r)
	if err != nil {
		return c, "", err
	}
	for i, token := range reply[:min(len(reply), r.MaxTokens)] {
		if s.beforeToken != nil {
			if err := s.beforeToken(ctx, i); err != nil {
				return c, "", err
			}
		}
		logprob := -0.5 * float32(i+1)
		done := token == tokenizer.End
		if constraint != nil {
			allowed := model.NewTokenSet(tokenizer.Bytes{}.VocabSize())
			if constraint.Allowed(allowed) && !allowed.Has(token) {
				token = first(allowed)
			}
			done = constraint.Accept(token) || done
			c.Forced = append(c.Forced, i%2 == 1)
		}
		c.Tokens, c.Logprobs = append(c.Tokens, token), append(c.Logprobs, logprob)
		if r.Emit != nil {
			r.Emit(token, logprob)
		}
		if done {
			c.Finish = "stop"
			break
		}
	}
	c.Server = "gpu-1:8000"
	return c, "c0ffee", nil
}

func first(set model.TokenSet) int32 {
	t := int32(0)
	for !set.Has(t) {
		t++
	}
	return t
}

func (s *script) constraint(r model.DecodeRequest) (model.Constraint, error) {
	if r.Form == nil {
		return nil, nil
	}
	if s.constrain != nil {
		return s.constrain(*r.Form)
	}
	return dialog.Constrain(*r.Form)
}
