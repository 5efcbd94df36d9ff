// Package experiment compares a candidate version with the version that it would replace, by
// how users judge real conversations. [Assign] says which units get the candidate,
// [Comparison] is a test that may be looked at after every judged conversation, and [Decide]
// is the rule that ends an experiment.
//
// The package is arithmetic. It serves nothing, stores nothing and has no clock: the same
// settings and outcomes, in the same order, always give the same result and verdict.
//
// # The comparison
//
// A unit is a user, or a conversation if its user is unknown. Users have habits, so the
// conversations of one user are one cluster and not independent observations. With N1 and N0
// judged conversations with the candidate and with the control, and the means M1 and M0 of
// their values, the estimate is D = M1 - M0. Its variance is the jackknife's over units,
//
//	V = sum over units of (D - D without the unit)²,
//
// which is the cluster-robust variance CR3 of Bell and McCaffrey (2002, Survey Methodology
// 28:169), without their factor (G-1)/G, for G units. With n = N1 N0 / (N1 + N0), the score
// T = n D behaves under equal means like a Brownian motion at time Q = n² V.
//
// # The boundary
//
// A test that is repeated while data comes in finds a difference sooner or later, even if
// there is none. So the score is compared with lines that a Brownian motion ever crosses
// only with a known probability (Robbins 1970, doi:10.1214/aoms/1177696786; Howard, Ramdas,
// McAuliffe and Sekhon 2020, arXiv 1808.03204): for every slope s > 0,
//
//	P(|T| >= log(2/a)/(2 s) + s Q at any time) <= a.
//
// Two lines share the level: one has 4/5 of it and is narrowest at the limit of
// conversations, one has 1/5 and is narrowest at a tenth of the limit, so that a large
// difference is found early. A difference is found when |T| reaches the lower line of the
// two. All D' whose difference from D is less than this boundary divided by n are the
// interval, which therefore contains the true difference at all looks together with
// probability 1 - level. Such asymptotic confidence sequences for means are due to Waudby-Smith,
// Arbour, Sinha, Kennedy and Ramdas (arXiv 2103.06476). Their boundary comes from a normal
// mixture. Lines need fewer conversations near a limit that is known before the experiment.
//
// # Assumptions
//
//   - Units are assigned independently of each other, and one unit's version has no effect
//     on another unit.
//   - How late feedback is, and whether there is any, does not depend on the version. It may
//     depend on the user and on the judgment.
//   - Conversations of a unit are not negatively correlated. If they are positively
//     correlated, of whatever strength, T is correlated with its own past at least as much as
//     a Brownian motion, and crosses less often (Slepian 1962).
//   - The units are many. The variance is an estimate, so the level is approximate; no
//     interval is given before each version has [MinUnits], and bench/experiment measures
//     what is left.
//   - The settings are those from before the first outcome.
package experiment

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Assign reports whether a unit gets the candidate of a run: the hashed user if it is known,
// otherwise the name of the conversation. The answer is always the same for the same unit
// and candidate. It is independent between units and between candidates, so users who got
// one candidate are not more likely to get the next one. A larger share only adds units. No
// unit gets the candidate at share 0, and all do at share 1.
func Assign(run string, candidate int, unit string, share float64) bool {
	h := sha256.New()
	number := func(n uint64) {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], n)
		h.Write(b[:])
	}
	h.Write([]byte("experiment"))
	number(uint64(len(run))) // so that no part of one name counts as part of the other
	h.Write([]byte(run))
	number(uint64(candidate))
	h.Write([]byte(unit))
	const bits = 53 // a float64 represents all integers of so many bits
	place := binary.BigEndian.Uint64(h.Sum(nil)) >> (64 - bits)
	return float64(place)/(1<<bits) < share
}

// Settings are what an experiment is begun with. They must not change while it is running.
type Settings struct {
	// Share is the share of units that get the candidate, between 0 and 1.
	Share float64 `json:"share"`
	// Level is the probability of finding a difference, at any of all looks, if there is
	// none: two-sided, at most 0.5.
	Level float64 `json:"level"`
	// Margin is the largest difference that does not matter. Once the whole interval is
	// within it, there is no difference. 0 looks for no such end.
	Margin float64 `json:"margin,omitempty"`
	// MinConversations is how many judged conversations each version needs before the
	// candidate is promoted or withdrawn.
	MinConversations int `json:"min_conversations"`
	// MaxConversations is how many judged conversations, of both versions together, end the
	// experiment. The test is most powerful near it.
	MaxConversations int `json:"max_conversations"`
}

// Check returns an error that names the setting with which no experiment can be done.
func (s Settings) Check() error {
	switch {
	case !(s.Share > 0 && s.Share < 1):
		return fmt.Errorf("share: %g: want more than 0 and less than 1", s.Share)
	case !(s.Level > 0 && s.Level <= 0.5):
		return fmt.Errorf("level: %g: want more than 0 and at most 0.5, such as 0.05", s.Level)
	case !(s.Margin >= 0 && s.Margin < 1):
		return fmt.Errorf("margin: %g: want at least 0 and less than 1", s.Margin)
	case s.MinConversations < 1:
		return fmt.Errorf("min_conversations: %d: want at least 1", s.MinConversations)
	}
	if expected := float64(s.MaxConversations) * min(s.Share, 1-s.Share); expected < float64(s.MinConversations) {
		return fmt.Errorf("max_conversations: %d: the smaller share of them is about %d, which is less than min_conversations: %d",
			s.MaxConversations, int(expected), s.MinConversations)
	}
	return nil
}

// Verdict is what the rule does.
type Verdict string

// The verdicts. All but Continue end the experiment.
const (
	Continue Verdict = "continue"
	Promote  Verdict = "promote"
	Withdraw Verdict = "withdraw"
	End      Verdict = "end" // without a promotion, because nothing was found
)

// Decide applies the rule to the result of a comparison with the same settings. It promotes
// a better candidate and withdraws a worse one, but never before each version has
// MinConversations. It ends an experiment if there is no difference that matters, or at
// MaxConversations. The reason is a sentence for people.
func Decide(s Settings, r Result) (verdict Verdict, reason string) {
	enough := min(r.Candidate.Conversations, r.Control.Conversations) >= s.MinConversations
	full := r.Candidate.Conversations+r.Control.Conversations >= s.MaxConversations
	switch {
	case enough && r.Decision == Better:
		return Promote, "users judge the candidate better: " + r.String()
	case enough && r.Decision == Worse:
		return Withdraw, "users judge the candidate worse: " + r.String()
	case enough && r.Decision == NoDifference:
		return End, fmt.Sprintf("the difference is less than %g: %s", s.Margin, r)
	case full && !enough:
		return End, fmt.Sprintf("max_conversations (%d) is reached, and a version has fewer than min_conversations (%d): %s", s.MaxConversations, s.MinConversations, r)
	case full:
		return End, fmt.Sprintf("no difference was found within max_conversations (%d): %s", s.MaxConversations, r)
	case enough && min(r.Candidate.EffectiveUnits, r.Control.EffectiveUnits) < MinUnits:
		return Continue, fmt.Sprintf("each version needs %d effective units, and the smaller number is %.1f: %s", MinUnits, min(r.Candidate.EffectiveUnits, r.Control.EffectiveUnits), r)
	case !enough:
		return Continue, fmt.Sprintf("each version needs min_conversations (%d): %s", s.MinConversations, r)
	}
	return Continue, "no difference was found yet: " + r.String()
}

// boundary returns how large the absolute score must be at a time of the Brownian motion.
func (s Settings) boundary(q float64) float64 {
	limit := timePerConversation * float64(s.MaxConversations) * s.Share * (1 - s.Share)
	return min(line(q, limit, s.Level*lateShare), line(q, limit*earlyTime, s.Level*(1-lateShare)))
}

const (
	// timePerConversation is how much of the score's time each of n conversations is expected
	// to take: at most 1/4, the largest variance of a value in [0, 1], and more because
	// users are correlated with themselves. It shapes the boundary, and no guarantee depends
	// on it.
	timePerConversation = 0.4
	lateShare           = 0.8 // of the level, for the line that is narrowest at the limit
	earlyTime           = 0.1 // where the other line is narrowest, as a part of the limit
)

// line returns, at time q, the height of the line that the absolute value of a Brownian
// motion ever reaches with a probability of at most level, and that is narrowest, relative to
// the standard deviation, at a given time.
func line(q, narrowest, level float64) float64 {
	return math.Sqrt(math.Log(2/level)/(2*narrowest)) * (narrowest + q)
}
