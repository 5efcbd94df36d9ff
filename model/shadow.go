package model

import (
	"fmt"
	"math"
)

// ShadowReply is what matters of one reply in a shadow. A reply that failed has no other
// fields.
type ShadowReply struct {
	Failed  bool
	CutOff  bool // by a limit of tokens
	Empty   bool // neither text nor the call of a tool
	Tokens  int
	Seconds float64
}

// ShadowPair is two replies to the same prompt.
type ShadowPair struct{ Candidate, Promoted ShadowReply }

// Shadow is how a candidate replied to prompts that the promoted version had answered in use.
// Nobody was shown the candidate's replies.
type Shadow struct {
	Promoted int     `json:"promoted"`
	Replies  int     `json:"replies"`           // of the candidate, with those that failed
	Missing  int     `json:"missing,omitempty"` // prompts that the candidate could not answer in time
	Level    float64 `json:"level"`
	// CutOff and Empty leave out the prompts for which the candidate failed.
	CutOff ShadowCount `json:"cut_off"`
	Empty  ShadowCount `json:"empty"`
	Failed ShadowCount `json:"failed"`
	// Tokens and Seconds are those of a reply. They are shown, and decide nothing.
	Tokens  ShadowMean `json:"tokens"`
	Seconds ShadowMean `json:"seconds"`
	// Withdraw says that the candidate is not promoted.
	Withdraw bool `json:"withdraw"`
}

// ShadowCount counts the replies of two versions with a fault.
type ShadowCount struct {
	Candidate int `json:"candidate"`
	Promoted  int `json:"promoted"`
	// PValue is that of the test that the candidate's replies have the fault no more often.
	PValue float64 `json:"p_value"`
	// Worse says that they have it more often, by that test.
	Worse bool `json:"worse"`
}

// ShadowMean compares the means of a number of two versions. StdError is the standard error of
// Difference, the mean over prompts of the candidate's number minus the promoted version's.
type ShadowMean struct {
	Candidate  float64 `json:"candidate"`
	Promoted   float64 `json:"promoted"`
	Difference float64 `json:"difference"`
	StdError   float64 `json:"std_error"`
}

// shadowFaults is how many faults are tested for. They share the level (Bonferroni).
const shadowFaults = 3

// MinShadowReplies returns how many pairs a shadow needs, so that anything can be significant.
func MinShadowReplies(level float64) int { return int(math.Ceil(math.Log2(shadowFaults / level))) }

// CompareShadow decides whether a candidate is withdrawn: whether significantly more of its
// replies failed, are empty or are cut off than of the promoted version's to the same prompts.
//
// The test is the exact one-sided sign test of the prompts for which exactly one of the two
// replies has the fault (Q. McNemar, Psychometrika 12, 1947, in the exact form of Dixon and
// Mood, JASA 41, 1946): if both versions have it equally often, either is equally likely to be
// the one. The three tests share the level, so a candidate whose replies have none of the
// faults more often is withdrawn with at most that probability. The prompts are given: nothing is said of
// prompts that others would send.
func CompareShadow(promoted int, level float64, pairs []ShadowPair) (Shadow, error) {
	s := Shadow{Promoted: promoted, Replies: len(pairs), Level: level}
	var answered []ShadowPair
	for _, p := range pairs {
		if !p.Candidate.Failed {
			answered = append(answered, p)
		}
	}
	var errs [5]error
	s.Failed, errs[0] = countFaults(pairs, level, func(r ShadowReply) bool { return r.Failed })
	s.Empty, errs[1] = countFaults(answered, level, func(r ShadowReply) bool { return r.Empty })
	s.CutOff, errs[2] = countFaults(answered, level, func(r ShadowReply) bool { return r.CutOff })
	s.Tokens, errs[3] = compareMeans(answered, func(r ShadowReply) float64 { return float64(r.Tokens) })
	s.Seconds, errs[4] = compareMeans(answered, func(r ShadowReply) float64 { return r.Seconds })
	for _, err := range errs {
		if err != nil {
			return Shadow{}, fmt.Errorf("compare a shadow with version %d: %w", promoted, err)
		}
	}
	s.Withdraw = s.Failed.Worse || s.Empty.Worse || s.CutOff.Worse
	return s, nil
}

func countFaults(pairs []ShadowPair, level float64, has func(ShadowReply) bool) (ShadowCount, error) {
	c := ShadowCount{PValue: 1}
	if len(pairs) == 0 {
		return c, nil
	}
	candidate, promoted := make([]float64, len(pairs)), make([]float64, len(pairs))
	for i, p := range pairs {
		if has(p.Candidate) {
			candidate[i] = 1
			c.Candidate++
		}
		if has(p.Promoted) {
			promoted[i] = 1
			c.Promoted++
		}
	}
	// For numbers of 0 and 1 this is the exact sign test.
	d, err := DecidePaired(0, 0, candidate, promoted, 0, level/shadowFaults)
	c.PValue, c.Worse = d.PValue, d.Accept
	return c, err
}

func compareMeans(pairs []ShadowPair, number func(ShadowReply) float64) (ShadowMean, error) {
	if len(pairs) == 0 {
		return ShadowMean{}, nil
	}
	candidate, promoted := make([]float64, len(pairs)), make([]float64, len(pairs))
	for i, p := range pairs {
		candidate[i], promoted[i] = number(p.Candidate), number(p.Promoted)
	}
	d, err := DecidePaired(0, 0, candidate, promoted, 0, 1)
	return ShadowMean{d.Reward, d.Baseline, d.Difference, d.StdError}, err
}

// Reason says in a sentence what was found.
func (s Shadow) Reason() string {
	text := fmt.Sprintf("in the shadow of version %d, ", s.Promoted)
	if s.Replies == 0 {
		return text + "no recorded prompt could be answered: nothing was compared"
	}
	text += fmt.Sprintf("%d of %d replies are cut off, against %d of version %d to the same prompts, %d are empty, against %d, and %d failed",
		s.CutOff.Candidate, s.Replies, s.CutOff.Promoted, s.Promoted, s.Empty.Candidate, s.Empty.Promoted, s.Failed.Candidate)
	switch least := MinShadowReplies(s.Level); {
	case s.Withdraw:
		text += ": significantly more " + s.worse()
	case s.Replies < least:
		text += fmt.Sprintf(": too few to tell, at least %d are needed at level %g", least, s.Level)
	default:
		text += fmt.Sprintf(": not significantly more at level %g", s.Level)
	}
	if s.Missing > 0 {
		text += fmt.Sprintf("; %d more were not answered in time", s.Missing)
	}
	return text
}

// worse names the faults that the candidate has more often.
func (s Shadow) worse() string {
	text := ""
	for _, f := range []struct {
		name string
		ShadowCount
	}{{"cut off", s.CutOff}, {"empty", s.Empty}, {"failed", s.Failed}} {
		if !f.Worse {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprintf("%s (p = %.2g, at most %.2g)", f.name, f.PValue, s.Level/shadowFaults)
	}
	return text
}

// Lengths says how long the replies are and took, each with the standard error of the
// difference.
func (s Shadow) Lengths() string {
	compared := func(m ShadowMean) string {
		return fmt.Sprintf("%.3g (%.3g), difference %+.3g ± %.2g", m.Candidate, m.Promoted, m.Difference, m.StdError)
	}
	return fmt.Sprintf("tokens a reply %s; seconds %s", compared(s.Tokens), compared(s.Seconds))
}
