package wire

import (
	"math"
	"unicode/utf8"
)

// leastLogprob replaces log-probabilities that JSON can't express.
const leastLogprob = -9999

// openLogprob is a token's log-probability in Chat and Responses.
type openLogprob struct {
	Token   string        `json:"token"`
	Logprob float32       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []openLogprob `json:"top_logprobs"`
}

func openLogprobs(tokens []Token) []openLogprob {
	all := make([]openLogprob, len(tokens))
	for i, t := range tokens {
		all[i] = openLogprob{Token: t.Text, Logprob: t.logprob(), Top: []openLogprob{}}
		for _, b := range t.Bytes {
			all[i].Bytes = append(all[i].Bytes, int(b))
		}
	}
	return all
}

// logprob returns the token's log-probability, or leastLogprob if JSON can't express it.
func (t Token) logprob() float32 {
	if math.IsNaN(float64(t.Logprob)) || math.IsInf(float64(t.Logprob), 0) {
		return leastLogprob
	}
	return t.Logprob
}

// equal reports whether two tokens look the same to a client.
func (t Token) equal(u Token) bool {
	return t.Text == u.Text && t.logprob() == u.logprob() && string(t.Bytes) == string(u.Bytes)
}

// characters counts the characters that begin in the token.
func (t Token) characters() int {
	if t.Bytes == nil {
		return utf8.RuneCountInString(t.Text)
	}
	n := 0
	for _, b := range t.Bytes {
		if utf8.RuneStart(b) {
			n++
		}
	}
	return n
}

// textLogprobs are the log-probabilities of Completions. The only known
// alternative to a token is itself.
type textLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float32            `json:"token_logprobs"`
	TopLogprobs   []map[string]float32 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

// textLogprobsOf returns the log-probabilities of tokens whose text begins at character
// offset. It also returns the offset at which the next tokens begin.
func textLogprobsOf(tokens []Token, offset int) (*textLogprobs, int) {
	all := &textLogprobs{Tokens: []string{}, TokenLogprobs: []float32{}, TopLogprobs: []map[string]float32{}, TextOffset: []int{}}
	for _, t := range tokens {
		all.Tokens = append(all.Tokens, t.Text)
		all.TokenLogprobs = append(all.TokenLogprobs, t.logprob())
		all.TopLogprobs = append(all.TopLogprobs, map[string]float32{t.Text: t.logprob()})
		all.TextOffset = append(all.TextOffset, offset)
		offset += t.characters()
	}
	return all, offset
}
