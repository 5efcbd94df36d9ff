package credit

// calls assigns the trained tokens of a row to their calls, which are numbered from 0 in
// the order of their first tokens.
type calls struct {
	of     []int // the call of each token of the row; -1 if the token is not trained
	tokens []int // number of trained tokens of each call
}

func newCalls(t Tokens) calls {
	c := calls{of: make([]int, len(t.Weight))}
	numbers := map[int32]int{}
	for i, w := range t.Weight {
		if w == 0 {
			c.of[i] = -1
			continue
		}
		var name int32
		if t.Call != nil {
			name = t.Call[i]
		}
		n, ok := numbers[name]
		if !ok {
			n = len(numbers)
			numbers[name] = n
			c.tokens = append(c.tokens, 0)
		}
		c.of[i] = n
		c.tokens[n]++
	}
	return c
}

// sums adds x up over the trained tokens of each call.
func (c calls) sums(x func(token int) float64) []float64 {
	out := make([]float64, len(c.tokens))
	for i, call := range c.of {
		if call >= 0 {
			out[call] += x(i)
		}
	}
	return out
}

// means returns the mean of x over the trained tokens of each call.
func (c calls) means(x func(token int) float64) []float64 {
	out := c.sums(x)
	for call := range out {
		out[call] /= float64(c.tokens[call])
	}
	return out
}

// spread returns, for each trained token, the number of its call.
func (c calls) spread(x []float64) []float64 {
	out := make([]float64, len(c.of))
	for i, call := range c.of {
		if call >= 0 {
			out[i] = x[call]
		}
	}
	return out
}
