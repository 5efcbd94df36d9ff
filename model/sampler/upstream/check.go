package upstream

import (
	"fmt"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/model"
)

// check reports what is impossible in a reply: it would otherwise be recorded as the
// policy's output. unused lists the ids that the server was told never to sample.
func (r reply) check(request model.DecodeRequest, version string, unused model.TokenRanges) error {
	c := r.completion
	switch {
	case version != "" && r.version != version:
		return fmt.Errorf("%w: %s sampled, not %s", ErrVersion, orUnnamed(r.version), version)
	case r.prompt != nil && !slices.Equal(r.prompt, request.Prompt):
		return fmt.Errorf("%w: it sampled after a prompt of %d tokens that is not the one of %d that was sent: does it add special tokens?",
			ErrReply, len(r.prompt), len(request.Prompt))
	case len(c.Tokens) == 0:
		return fmt.Errorf("%w: it has no token ids: is this version of the server too old to return them?", ErrReply)
	case len(c.Tokens) != len(c.Logprobs):
		return fmt.Errorf("%w: %d token ids and %d log-probabilities", ErrReply, len(c.Tokens), len(c.Logprobs))
	case len(c.Tokens) > request.MaxTokens:
		return fmt.Errorf("%w: %d tokens, %d were asked for", ErrReply, len(c.Tokens), request.MaxTokens)
	case c.Finish != "stop" && c.Finish != "length":
		return fmt.Errorf("%w: it ended for the reason %q", ErrReply, c.Finish)
	}
	for i, p := range c.Logprobs {
		if math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) || p > 1e-3 {
			return fmt.Errorf("%w: the log-probability of token %d is %v", ErrReply, i, p)
		}
		if c.Tokens[i] < 0 {
			return fmt.Errorf("%w: token %d has the id %d", ErrReply, i, c.Tokens[i])
		}
		if unused.Has(c.Tokens[i]) {
			return fmt.Errorf("%w: token %d has the id %d, which no token has: it was told by logit_bias not to sample that id; does a proxy leave logit_bias out?", ErrReply, i, c.Tokens[i])
		}
	}
	last := c.Tokens[len(c.Tokens)-1]
	if c.Finish == "stop" && !slices.Contains(request.Stop, last) && (request.Form == nil || len(request.Form.Stop) == 0 && !request.Form.Masks()) {
		return fmt.Errorf("%w: it stopped with token %d, which ends no turn", ErrReply, last)
	}
	return nil
}

func orUnnamed(version string) string {
	if version == "" {
		return "a version without a name"
	}
	return version
}
