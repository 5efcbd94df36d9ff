package record

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Sequence is one or more calls laid end to end because each call's prompt
// begins with all tokens of the call before it. All slices have the length of
// Tokens.
type Sequence struct {
	Tokens []int32
	// Sampled marks the tokens that the policy chose and that are trained.
	Sampled []bool
	// Logprobs holds the recorded log-probability where Sampled, else 0.
	Logprobs []float32
	// Call is the index, in the calls given to Merge, of the call that produced
	// the token, or -1 for context.
	Call []int
	// Origin is like Call, but also names the call of sampled tokens that are not
	// trained. Only context has -1.
	Origin []int
	// Temperature is the temperature of all its calls.
	Temperature float64
	// Policy is the policy of all its calls.
	Policy string
	// Forms holds the form, and its place, of each completion that was held to one.
	Forms []SequenceForm
}

// SequenceForm is the form of Length tokens from Start on, the completion of one
// call, whether they are trained or not.
type SequenceForm struct {
	Start, Length int
	Form          json.RawMessage
}

// Trained counts the tokens that the loss sees.
func (s Sequence) Trained() int {
	n := 0
	for _, t := range s.Sampled {
		if t {
			n++
		}
	}
	return n
}

// Merge turns calls into the fewest sequences in which each sampled token
// occurs as sampled exactly once. A call joins the sequence that its prompt
// extends, the longest if several do; otherwise it begins a new one. A prompt
// that is only part of a sequence does not join it. Calls that were sampled by another
// policy or at another temperature never share a sequence, since the loss rebuilds the
// distribution that sampled. Calls that were held to different forms may share one: a
// form goes with its own tokens.
//
// Calls are taken by length of prompt and then by seed, so that the order in which an
// agent's simultaneous calls were recorded does not matter: equal calls give equal
// sequences in equal order, and so, summed up, equal gradients.
func Merge(calls []Call) []Sequence {
	order := make([]int, len(calls))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(calls[a].Prompt), len(calls[b].Prompt)), cmp.Compare(calls[a].Seed, calls[b].Seed))
	})
	var out []Sequence
	for _, i := range order {
		c := calls[i]
		best := -1
		for j := range out {
			s := &out[j]
			if s.Policy == c.Policy && s.Temperature == c.Temperature && len(s.Tokens) <= len(c.Prompt) &&
				slices.Equal(s.Tokens, c.Prompt[:len(s.Tokens)]) &&
				(best < 0 || len(s.Tokens) > len(out[best].Tokens)) {
				best = j
			}
		}
		if best < 0 {
			out = append(out, Sequence{Temperature: c.Temperature, Policy: c.Policy})
			best = len(out) - 1
		}
		out[best].extend(i, c)
	}
	return out
}

func (s *Sequence) extend(i int, c Call) {
	for _, t := range c.Prompt[len(s.Tokens):] {
		s.append(t, false, 0, -1, -1)
	}
	if len(c.Form) > 0 {
		s.Forms = append(s.Forms, SequenceForm{len(s.Tokens), len(c.Completion), c.Form})
	}
	for k, t := range c.Completion {
		if c.Untrained != nil && c.Untrained[k] {
			s.append(t, false, 0, -1, i)
			continue
		}
		s.append(t, true, c.Logprobs[k], i, i)
	}
}

func (s *Sequence) append(token int32, sampled bool, logprob float32, call, origin int) {
	s.Tokens = append(s.Tokens, token)
	s.Sampled = append(s.Sampled, sampled)
	s.Logprobs = append(s.Logprobs, logprob)
	s.Call = append(s.Call, call)
	s.Origin = append(s.Origin, origin)
}
