package upstream

import (
	"fmt"
	"strconv"

	"github.com/fulgurite/fulgurite/model"
)

const (
	// maxBiased is how many ids vLLM takes in logit_bias. SGLang has no such bound.
	maxBiased = 1024
	// never is the least bias that servers take. It makes an id e^100 times less likely,
	// which is probability 0 for every purpose.
	never = -100
)

// biases are additions to logits by the id of their token, in the form of requests.
type biases map[string]float64

// newBiases returns what makes a server never sample the given ids.
func newBiases(unused model.TokenRanges) biases {
	if unused == "" {
		return nil
	}
	b := biases{}
	unused.Each(func(first, last int) {
		for id := first; id <= last; id++ {
			b[strconv.Itoa(id)] = never
		}
	})
	return b
}

// CheckUnused returns an error if a server of the given type can't be told to leave out
// so many ids without a token.
func CheckUnused(kind string, unused model.TokenRanges) error {
	if n := unused.Tokens(); kind == VLLM && n > maxBiased {
		return fmt.Errorf("%d rows of the model's vocabulary have no token, and a server of type %s can be told to leave out %d", n, kind, maxBiased)
	}
	return nil
}
