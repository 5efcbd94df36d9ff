package judge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The range of a score.
const (
	worst = 0
	best  = 10
)

// read finds the scores in an answer: the one array of numbers in it, however it is
// decorated, or several that say the same. There have to be n of them, each in range.
func read(answer string, n int) ([]float64, error) {
	scores, err := array(answer)
	if err != nil {
		return nil, err
	}
	if len(scores) != n {
		return nil, fmt.Errorf("it has %d scores, and there are %d calls", len(scores), n)
	}
	for i, s := range scores {
		if s < worst || s > best {
			return nil, fmt.Errorf("score %d is %v, which is not from %d to %d", i+1, s, worst, best)
		}
	}
	return scores, nil
}

// brackets is how many opening ones are looked at: an answer of nothing else must not
// take long.
const brackets = 256

// array finds the numbers. It skips the thoughts before the answer, which end with the
// mark that such models are trained to use.
func array(answer string) (found []float64, err error) {
	if at := strings.LastIndex(answer, "</think>"); at >= 0 {
		answer = answer[at:]
	}
	rest := answer
	for range brackets {
		at := strings.IndexByte(rest, '[')
		if at < 0 {
			if found == nil {
				return nil, errors.New("it holds no JSON array of numbers")
			}
			return found, nil
		}
		rest = rest[at+1:]
		d := json.NewDecoder(strings.NewReader(answer[len(answer)-len(rest)-1:]))
		var numbers []*float64 // a null is no number
		if d.Decode(&numbers) != nil || slices.Contains(numbers, nil) {
			continue
		}
		next := values(numbers)
		if found != nil && !slices.Equal(found, next) {
			return nil, errors.New("it holds more than one array of numbers")
		}
		found = next
		rest = rest[d.InputOffset()-1:]
	}
	return nil, errors.New("it holds too many brackets")
}

func values(numbers []*float64) []float64 {
	out := make([]float64, len(numbers))
	for i, n := range numbers {
		out[i] = *n + 0 // there is no negative zero
	}
	return out
}
