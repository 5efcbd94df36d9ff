// Package bounds holds the bounds of numbers that a spec gives and an engine computes
// with. Package spec checks with them what it accepts, and package model what it computes
// with, so that an engine takes every number that a spec may have.
package bounds

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bounds are the limits of a number. Above and Below exclude the limits themselves.
type Bounds struct {
	Low, High    float64
	Above, Below bool
}

// Positive returns the bounds of a number that is more than 0 and at most high.
func Positive(high float64) Bounds { return Bounds{High: high, Above: true} }

// Between returns the bounds of a number from low to high.
func Between(low, high float64) Bounds { return Bounds{Low: low, High: high} }

// Fraction returns the bounds of a number that is more than 0 and less than 1.
func Fraction() Bounds { return Bounds{High: 1, Above: true, Below: true} }

// Temperature returns the bounds of a temperature that is not 0: engines multiply by its
// inverse in float32.
func Temperature() Bounds { return Between(1e-6, 100) }

// TopP returns the bounds of the probability that nucleus sampling keeps; 0 stands for all.
func TopP() Bounds { return Between(0, 1) }

// MaxTokens returns the bounds of the number of tokens that one call samples.
func MaxTokens() Bounds { return Between(1, 1e7) }

// LearningRate returns the bounds of a learning rate. A schedule may lower it to 0.
func LearningRate() Bounds { return Positive(1) }

// Beta returns the bounds of AdamW's two decay rates.
func Beta() Bounds { return Fraction() }

// Epsilon returns the bounds of AdamW's epsilon. Engines divide by it in float32 where a
// gradient has always been 0.
func Epsilon() Bounds { return Bounds{Low: 1e-30, High: 1, Below: true} }

// WeightDecay returns the bounds of AdamW's weight decay.
func WeightDecay() Bounds { return Between(0, 1) }

// ClipNorm returns the bounds of the norm to which gradients are clipped.
func ClipNorm() Bounds { return Positive(1e300) }

// LoRARank returns the bounds of an adapter's rank.
func LoRARank() Bounds { return Between(1, 1024) }

// MaxTrainedTokens is how many tokens may have rows that an adapter trains.
const MaxTrainedTokens = 1024

// LoRAAlpha returns the bounds of an adapter's alpha.
func LoRAAlpha() Bounds { return Positive(1e6) }

// Hold reports whether v is within the bounds. It never is unless it is finite.
func (b Bounds) Hold(v float64) bool {
	return !math.IsNaN(v) && !math.IsInf(v, 0) && v >= b.Low && v <= b.High && !(b.Above && v == b.Low) && !(b.Below && v == b.High)
}

// Edges returns the least and the largest number within the bounds.
func (b Bounds) Edges() (low, high float64) {
	low, high = math.Max(b.Low, -math.MaxFloat64), math.Min(b.High, math.MaxFloat64)
	if b.Above {
		low = math.Nextafter(low, math.Inf(1))
	}
	if b.Below {
		high = math.Nextafter(high, math.Inf(-1))
	}
	return low, high
}

// String says what holds, for example "more than 0 and at most 1"; it is empty if every
// finite number does.
func (b Bounds) String() string {
	var words []string
	switch {
	case math.IsInf(b.Low, -1):
	case b.Above:
		words = append(words, fmt.Sprintf("more than %g", b.Low))
	default:
		words = append(words, fmt.Sprintf("at least %g", b.Low))
	}
	switch {
	case math.IsInf(b.High, 1):
	case b.Below:
		words = append(words, fmt.Sprintf("less than %g", b.High))
	default:
		words = append(words, "at most "+text(b.High))
	}
	return strings.Join(words, " and ")
}

// text writes whole numbers of usual sizes in digits.
func text(v float64) string {
	if math.Abs(v) >= 1e15 {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
