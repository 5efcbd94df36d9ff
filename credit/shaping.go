package credit

// Overlong is DAPO's soft punishment of long attempts (arXiv:2503.14476).
type Overlong struct {
	// Tokens is the length that gets the whole penalty, L_max.
	Tokens int
	// Buffer is how many tokens before that the penalty begins to grow.
	Buffer int
	// Penalty is the loss of the longest.
	Penalty float64
}

// Shape is the change of an attempt's reward for its number of sampled tokens:
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

// FormatPenalty is the change of an attempt's reward for replies that could not be
// parsed: once the penalty, however many they were, so that an attempt does not gain by
// ending early.
func FormatPenalty(unparsed int, penalty float64) float64 {
	if unparsed > 0 {
		return -penalty
	}
	return 0
}
