package credit

// Overlong is DAPO's soft punishment of long attempts (arXiv:2503.14476).
type Overlong struct {
	// Tokens is the length that gets the whole penalty, L_max.
	Tokens int
	// Buffer is how many tokens before that the penalty begins to grow.
	Buffer int
	// Penalty is what the longest lose.
	Penalty float64
}

// Shape is what the reward of an attempt with that many sampled tokens changes by:
//
//	0                                    up to Tokens − Buffer
//	−Penalty·(length − (Tokens − Buffer))/Buffer  from there to Tokens
//	−Penalty                             beyond
//
// Without a buffer the penalty is a step right after Tokens. verl's code goes on
// falling beyond Tokens, where its rollouts end; an attempt of several calls can be
// longer, and the paper's formula stops at −Penalty.
func (o Overlong) Shape(length int) float64 {
	over := length - (o.Tokens - o.Buffer)
	switch {
	case over <= 0:
		return 0
	case over >= o.Buffer:
		return -o.Penalty
	}
	return -o.Penalty * float64(over) / float64(o.Buffer)
}

// FormatPenalty is what the reward of an attempt changes by, of whose replies that
// many could not be parsed: once the penalty, however many they were, so that an
// attempt is not better off for ending early.
func FormatPenalty(unparsed int, penalty float64) float64 {
	if unparsed > 0 {
		return -penalty
	}
	return 0
}
