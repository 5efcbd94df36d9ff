package native

import (
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/engine/native/kernel"
)

// choice holds the tokens that one position may choose among, in ascending order, and
// their logits one after the other, so that a soft-max runs over a smaller vocabulary.
type choice struct {
	tokens  []int32
	logits  []float32 // with room for padding
	chances []float32 // of the tokens, if the request asks for a nucleus
	set     model.TokenSet
}

// among sets the choice to the tokens of a set and returns their number.
func (c *choice) among(set model.TokenSet, vocab int) int {
	c.tokens = set.AppendTokens(c.tokens[:0], vocab)
	return len(c.tokens)
}

// gather copies the logits of the choice's tokens out of the logits of all tokens.
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

// scatter writes the gathered numbers back to the places of their tokens; all other
// tokens get 0.
func (c *choice) scatter(logits []float32) {
	clear(logits)
	for i, token := range c.tokens {
		logits[token] = c.logits[i]
	}
}

// indexOf returns the index of a token in the choice, which must contain it.
func (c *choice) indexOf(token int32) int {
	at, _ := slices.BinarySearch(c.tokens, token)
	return at
}

// restrict sets b.choice to the tokens that q may choose among next. It reports false if
// q may choose any token.
func (b *worker) restrict(q *request, logits []float32) (bool, error) {
	c, restricted := &b.choice, false
	if q.Constraint != nil {
		if c.set == nil {
			c.set = model.NewTokenSet(b.VocabSize)
		}
		clear(c.set)
		if restricted = q.Constraint.Allowed(c.set); restricted && c.among(c.set, b.VocabSize) == 0 {
			return false, fmt.Errorf("%w: it allows no token of the vocabulary after %d tokens of the completion", model.ErrForm, len(q.Completion.Tokens))
		}
	}
	if !q.HasNucleus() {
		return restricted, nil
	}
	if !restricted {
		c.all(b.VocabSize, b.unused)
	}
	c.chances = append(c.chances[:0], c.gather(logits)...)
	b.Softmax(c.chances, len(c.tokens), q.scale)
	c.tokens = model.Nucleus(c.tokens, c.chances, q.TopP)
	return true, nil
}

// all sets the choice to all tokens of the vocabulary.
func (c *choice) all(vocab int, unused [][2]int) {
	c.tokens = c.tokens[:0]
	next := 0
	for _, ids := range append(unused[:len(unused):len(unused)], [2]int{vocab, vocab}) {
		for ; next < ids[0]; next++ {
			c.tokens = append(c.tokens, int32(next))
		}
		next = ids[1] + 1
	}
}

// chooseAmong samples one token of b.choice, as choose does from all tokens.
func (b *worker) chooseAmong(q *request, all []float32) (token int32, o outcome) {
	c := &b.choice
	logits, n := c.gather(all), len(c.tokens)
	at := largest(logits[:n])
	if q.Temperature > 0 {
		at = model.GumbelChooseAmong(c.tokens, logits[:n], q.scale, q.Seed, len(q.Completion.Tokens))
	}
	return c.tokens[at], b.tokenOutcome(logits, n, at, q.scale)
}
