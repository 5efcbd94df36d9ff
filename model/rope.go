package model

import (
	"fmt"
	"math"
)

// RopeScaling slows down the low frequencies of the rotary embedding, so that a model
// that was trained on few positions can be used for many. It is the scaling of Llama 3.1
// and 3.2, which config.json calls rope_type "llama3". Its zero value changes nothing.
//
// A frequency f, in radians per position, makes one turn in 2π/f positions. If there are
// more than HighFrequencyFactor turns in OriginalPositions, f stays. If there are fewer
// than LowFrequencyFactor, it becomes f/Factor. Between the two it changes linearly with
// the number of turns.
type RopeScaling struct {
	Factor              float64 `json:"factor"`
	LowFrequencyFactor  float64 `json:"low_freq_factor"`
	HighFrequencyFactor float64 `json:"high_freq_factor"`
	OriginalPositions   int     `json:"original_max_position_embeddings"`
}

// Frequency returns the scaled frequency. The conversions keep a compiler from fusing
// operations, which would give other bits on other processors.
func (s RopeScaling) Frequency(f float64) float64 {
	if s == (RopeScaling{}) {
		return f
	}
	turns := float64(s.OriginalPositions) / (2 * math.Pi / f)
	switch {
	case turns > s.HighFrequencyFactor:
		return f
	case turns < s.LowFrequencyFactor:
		return f / s.Factor
	}
	kept := (turns - s.LowFrequencyFactor) / (s.HighFrequencyFactor - s.LowFrequencyFactor)
	return float64((1-kept)*f/s.Factor) + float64(kept*f)
}

// check names the field that makes the scaling impossible.
func (s RopeScaling) check() error {
	if s == (RopeScaling{}) {
		return nil
	}
	switch {
	case !(s.Factor >= 1 && s.Factor <= 1e6):
		return fmt.Errorf("%w: rope_scaling: factor is %v, want 1 to 1e6", ErrArchitecture, s.Factor)
	case !(s.LowFrequencyFactor > 0 && s.LowFrequencyFactor < s.HighFrequencyFactor && s.HighFrequencyFactor <= 1e6):
		return fmt.Errorf("%w: rope_scaling: low_freq_factor is %v and high_freq_factor %v, want 0 < low < high, at most 1e6",
			ErrArchitecture, s.LowFrequencyFactor, s.HighFrequencyFactor)
	case s.OriginalPositions < 1 || s.OriginalPositions > maxPositions:
		return fmt.Errorf("%w: rope_scaling: original_max_position_embeddings is %d, want 1 to %d", ErrArchitecture, s.OriginalPositions, maxPositions)
	}
	return nil
}
