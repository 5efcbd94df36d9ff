package model

import (
	"fmt"
	"math"
	"slices"
)

// Decision is whether a candidate becomes the promoted version, and why.
type Decision struct {
	Candidate int     `json:"candidate"`
	Promoted  int     `json:"promoted"` // the version promoted before, -1 if there was none
	Reward    float64 `json:"reward"`   // candidate's mean on the gate split
	Baseline  float64 `json:"baseline"` // the promoted version's mean there
	Margin    float64 `json:"margin"`
	// Difference is the mean over tasks of the candidate's reward minus the promoted
	// version's. StdError is the standard error of Difference, with tasks as clusters.
	Difference float64 `json:"difference"`
	StdError   float64 `json:"std_error"`
	// PValue is the result of the one-sided sign-flip test over Tasks tasks. The
	// candidate needs a PValue of at most Significance. All three are 0 if nothing was
	// tested.
	PValue       float64 `json:"p_value"`
	Significance float64 `json:"significance"`
	Tasks        int     `json:"tasks"`
	Accept       bool    `json:"accept"`
	// Obstacle says why the versions could not be compared.
	Obstacle string `json:"obstacle,omitempty"`
	// ApprovedBy is the person who approved; empty if no approval was asked for.
	ApprovedBy string `json:"approved_by,omitempty"`
	// Shadow is how the candidate replied to recorded prompts after the gate; nil if it was
	// not asked.
	Shadow *Shadow `json:"shadow,omitempty"`
	// Policy is the policy that Candidate and Promoted are versions of, if each of several is
	// promoted alone. Versions has what was promoted of each policy before; the candidate was
	// evaluated with the versions of the others.
	Policy   string         `json:"policy,omitempty"`
	Versions map[string]int `json:"versions,omitempty"`
}

// rounding is the largest difference of two rewards, relative to their size, that counts
// as 0: sums of equal rewards may differ in their last bits.
const rounding = 1e-12

// DecidePaired compares versions task by task. rewards and baseline hold, for
// each task of the gate split, the mean reward of the candidate's samples and of
// the promoted version's. The candidate is accepted if it is better by more than
// margin on average, and if the one-sided p-value of the paired differences is
// at most significance; 1 accepts without a test.
//
// The test resamples tasks, not samples, so that all samples of one task are one
// observation (Miller 2024, "Adding Error Bars to Evals", arXiv:2411.00640, §2.2 on
// clusters and §4.2 on pairs). It flips signs instead of assuming that means are normally
// distributed. They are not, with few tasks and rewards of 0 and 1.
func DecidePaired(candidate, promoted int, rewards, baseline []float64, margin, significance float64) (Decision, error) {
	d := Decision{Candidate: candidate, Promoted: promoted, Margin: margin, Significance: significance, Tasks: len(rewards)}
	if len(rewards) == 0 || len(rewards) != len(baseline) {
		return Decision{}, fmt.Errorf("compare version %d with %d: rewards of %d and %d tasks", candidate, promoted, len(rewards), len(baseline))
	}
	differences := make([]float64, len(rewards))
	size := math.Abs(margin)
	for i, r := range rewards {
		if !finite(r) || !finite(baseline[i]) {
			return Decision{}, fmt.Errorf("compare version %d with %d: rewards %v and %v of task %d", candidate, promoted, r, baseline[i], i)
		}
		differences[i] = r - baseline[i]
		size = max(size, math.Abs(r), math.Abs(baseline[i]))
	}
	for i, x := range differences {
		if math.Abs(x) <= rounding*size {
			differences[i] = 0
		}
	}
	d.Reward, d.Baseline, d.Difference = mean(rewards), mean(baseline), mean(differences)
	d.StdError, d.PValue = stdError(differences), signFlip(differences)
	d.Accept = d.Difference-margin > rounding*size && d.PValue <= significance
	return d, nil
}

// Unpaired returns a decision that refuses a candidate, because the obstacle makes it
// impossible to compare it with the promoted version.
func Unpaired(candidate, promoted int, obstacle string) Decision {
	return Decision{Candidate: candidate, Promoted: promoted, Obstacle: obstacle}
}

// Reason returns the decision as a sentence.
func (d Decision) Reason() string {
	verdict := "refused"
	if d.Accept {
		verdict = "promoted"
	}
	added := ""
	if d.Shadow != nil && d.Obstacle == "" {
		added = "; " + d.Shadow.Reason()
	}
	if d.ApprovedBy != "" {
		added += ", approved by " + d.ApprovedBy
	}
	switch {
	case d.Obstacle != "":
		return fmt.Sprintf("version %d %s: %s", d.Candidate, verdict, d.Obstacle)
	case d.Promoted < 0:
		return fmt.Sprintf("version %d %s: it is the first%s", d.Candidate, verdict, added)
	case d.Tasks == 0:
		return fmt.Sprintf("version %d %s: gate reward %.3f against %.3f of version %d, margin %g%s",
			d.Candidate, verdict, d.Reward, d.Baseline, d.Promoted, d.Margin, added)
	}
	return fmt.Sprintf("version %d %s: gate reward %.3f against %.3f of version %d, difference %+.3f ± %.3f over %d tasks, margin %g, p = %.3g, at most %g%s",
		d.Candidate, verdict, d.Reward, d.Baseline, d.Promoted, d.Difference, d.StdError, d.Tasks, d.Margin, d.PValue, d.Significance, added)
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// stdError returns the standard error of the mean of values, and 0 for a single value.
func stdError(values []float64) float64 {
	n := float64(len(values))
	if n < 2 {
		return 0
	}
	m, squares := mean(values), 0.0
	for _, v := range values {
		squares += (v - m) * (v - m)
	}
	return math.Sqrt(squares / (n - 1) / n)
}

// signFlipSums limits how many different sums the sign-flip test tells apart. Rewards of
// 0 and 1 stay far below it, whatever the number of tasks. For other rewards the test is
// exact up to 16 tasks whose rewards differ.
const signFlipSums = 1 << 16

// signFlip returns the one-sided p-value of Fisher's randomization test for paired
// differences: the probability that their sum is at least as large as the observed one,
// if each difference has either sign with equal probability (R. A. Fisher, The Design of
// Experiments, 1935, §21). The test assumes nothing about the distribution of rewards. It
// is exact unless signFlipSums limits it; for rewards of 0 and 1 it is the sign test.
// Differences of 0 have no effect. One task alone proves nothing: its p-value is 1.
//
// A sum is at least as large as the observed one exactly if the differences with a minus
// sign add up to no more than they do in the observation. So the code counts the sums of
// subsets, difference by difference, up to that limit.
func signFlip(differences []float64) float64 {
	var sizes []float64
	limit, total := 0.0, 0.0
	for _, d := range differences {
		if d == 0 {
			continue
		}
		sizes = append(sizes, math.Abs(d))
		total += math.Abs(d)
		if d < 0 {
			limit -= d
		}
	}
	if len(differences) < 2 || len(sizes) == 0 {
		return 1
	}
	slices.Sort(sizes) // so that the order of tasks can't matter, not even in the last bit
	near := 1e-9 * total
	sums, grid := []subsetSum{{0, 1}}, near
	for _, size := range sizes {
		sums = flip(sums, size, limit+near, near)
		for len(sums) > signFlipSums {
			if sums = merge(sums, grid); len(sums) > signFlipSums {
				grid *= 2
			}
		}
	}
	p := 0.0
	for _, s := range sums {
		p += s.probability
	}
	return min(1, p)
}

// subsetSum holds the probability that the differences with a minus sign add up to sum.
type subsetSum struct{ sum, probability float64 }

// flip adds one more difference, with either sign. It drops sums beyond limit, and merges
// sums that are closer than near.
func flip(sums []subsetSum, size, limit, near float64) []subsetSum {
	out := make([]subsetSum, 0, 2*len(sums))
	add := func(sum, probability float64) {
		switch last := len(out) - 1; {
		case sum > limit:
		case last >= 0 && sum-out[last].sum <= near:
			out[last].probability += probability / 2
		default:
			out = append(out, subsetSum{sum, probability / 2})
		}
	}
	plus := 0 // index of the next sum to which the size is added
	for _, s := range sums {
		for ; sums[plus].sum+size < s.sum; plus++ {
			add(sums[plus].sum+size, sums[plus].probability)
		}
		add(s.sum, s.probability)
	}
	for _, s := range sums[plus:] {
		add(s.sum+size, s.probability)
	}
	return out
}

// merge replaces sums within grid of each other by their weighted mean, so that errors
// cancel.
func merge(sums []subsetSum, grid float64) []subsetSum {
	out, first := sums[:1], sums[0].sum
	for _, s := range sums[1:] {
		last := &out[len(out)-1]
		if s.sum-first > grid {
			out, first = append(out, s), s.sum
			continue
		}
		probability := last.probability + s.probability
		last.sum += (s.sum - last.sum) * s.probability / probability
		last.probability = probability
	}
	return out
}
