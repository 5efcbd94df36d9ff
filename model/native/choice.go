package native

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/native/kernel"
)

// choice has the tokens that one position may choose among, ascending, and their logits
// one after the other, so that a soft-max runs over a smaller vocabulary.
type choice struct {
	tokens  []int32
	logits  []float32 // with room for padding
	chances []float32 // of the tokens, where a nucleus is asked for
	set     model.TokenSet
}

// among makes the choice that of a set, and reports how many tokens it has.
func (c *choice) among(set model.TokenSet, vocab int) int {
	c.tokens = set.AppendTokens(c.tokens[:0], vocab)
	return len(c.tokens)
}

// gather fetches the logits of the tokens from those of all.
func (c *choice) gather(logits []float32) []float32 {
	n := len(c.tokens)
	if cap(c.logits) < n {
		c.logits = make([]float32, kernel.Pad(len(logits)))
	}
	c.logits = c.logits[:kernel.Pad(n)]
	for i, token := range c.tokens {
		c.logits[i] = logits[token]
	}
	return c.logits
}

// scatter puts back what gather fetched; all other tokens get 0.
func (c *choice) scatter(logits []float32) {
	clear(logits)
	for i, token := range c.tokens {
		logits[token] = c.logits[i]
	}
}

// indexOf is the index of a token in the choice; it has to be there.
func (c *choice) indexOf(token int32) int {
	at, _ := slices.BinarySearch(c.tokens, token)
	return at
}

// restrict makes b.choice what q may choose among next. It reports false where
// that is everything.
func (b *worker) restrict(q *request, logits []float32) (bool, error) {
	c, restricted := &b.choice, false
	if q.Constraint != nil {
		if c.set == nil {
			c.set = model.NewTokenSet(b.VocabSize)
		}
		clear(c.set)
		if restricted = q.Constraint.Allowed(c.set); restricted && c.among(c.set, b.VocabSize) == 0 {
			return false, fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(q.completion.Tokens))
		}
	}
	if !q.hasNucleus() {
		return restricted, nil
	}
	if !restricted {
		c.all(b.VocabSize)
	}
	c.chances = append(c.chances[:0], c.gather(logits)...)
	b.Softmax(c.chances, len(c.tokens), q.scale)
	c.tokens = model.Nucleus(c.tokens, c.chances, q.TopP)
	return true, nil
}

func (c *choice) all(vocab int) {
	c.tokens = c.tokens[:0]
	for token := range int32(vocab) {
		c.tokens = append(c.tokens, token)
	}
}

// chooseAmong samples one token of b.choice, as choose does of all.
func (b *worker) chooseAmong(q *request, all []float32) (token int32, o outcome) {
	c := &b.choice
	logits, n := c.gather(all), len(c.tokens)
	at := largest(logits[:n])
	if q.Temperature > 0 {
		at = model.GumbelChooseAmong(c.tokens, logits[:n], q.scale, q.Seed, len(q.completion.Tokens))
	}
	return c.tokens[at], b.tokenOutcome(logits, n, at, q.scale)
}
