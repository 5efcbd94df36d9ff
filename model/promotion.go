package model

import "fmt"

// Decision is whether a candidate becomes the promoted version, and why.
type Decision struct {
	Candidate int     `json:"candidate"`
	Promoted  int     `json:"promoted"` // the version promoted before
	Reward    float64 `json:"reward"`   // candidate's mean on the gate split
	Baseline  float64 `json:"baseline"` // the promoted version's mean there
	Margin    float64 `json:"margin"`
	Accept    bool    `json:"accept"`
}

// Decide accepts a candidate whose mean reward on the gate split exceeds the
// promoted version's by more than margin.
func Decide(candidate, promoted int, reward, baseline, margin float64) Decision {
	return Decision{candidate, promoted, reward, baseline, margin, reward > baseline+margin}
}

// Reason says the decision in a sentence.
func (d Decision) Reason() string {
	verb := "refused"
	if d.Accept {
		verb = "promoted"
	}
	return fmt.Sprintf("version %d %s: gate reward %.3f against %.3f of version %d, margin %g", d.Candidate, verb, d.Reward, d.Baseline, d.Promoted, d.Margin)
}
