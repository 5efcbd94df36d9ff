package credit

import (
	"fmt"
	"slices"
)

const (
	// valueFolds is the number of folds; each is estimated from the others.
	valueFolds = 5
	// defaultRidge is the strength if there are too few groups to choose one.
	defaultRidge = 1
)

// ridges returns the strengths to choose from, the strongest first. Of equally good ones
// the strongest is chosen.
func ridges() []float64 { return []float64{100, 10, 1, 0.1, 0.01} }

// Example is one call: features of its context, and the reward of its attempt.
type Example struct {
	// Features are hashes of the call's context: tokens, pairs of tokens, the number of
	// the call. Repeated features count once.
	Features []uint64
	Outcome  float64
}

// Forecast estimates a reward before it is known. Its zero value estimates 0.
type Forecast struct {
	features  map[uint64]int32
	weights   []float64
	mean      float64
	low, high float64
}

// FitValues learns to estimate outcomes. The estimates of each group are learned from
// other groups alone: no outcome of group g has influenced out[g], not even the choice of
// its settings. So an attempt is never compared with an estimate that knows its own
// outcome.
//
// The model is ridge regression on the presence of features that occur in at least two
// groups. Groups are dealt into five folds in order, and each fold is estimated from the
// other four; every third group of those four decides on the strength of the ridge. Sums
// run in a fixed order: the same examples give the same bits on one kind of processor.
//
// FitValues needs two groups with examples; otherwise its error wraps ErrNothingToTrain and
// ErrEstimate.
func FitValues(groups [][]Example) ([]Forecast, error) {
	filled := 0
	for g, examples := range groups {
		for i, e := range examples {
			if !finite(e.Outcome) {
				return nil, fmt.Errorf("%w: the outcome of example %d of group %d is %v", ErrEstimate, i, g, e.Outcome)
			}
		}
		filled += min(len(examples), 1)
	}
	if filled < 2 {
		return nil, fmt.Errorf("%w: %w: success is estimated from other groups, and %d of %d have calls; give a step two tasks at least", ErrEstimate, ErrNothingToTrain, filled, len(groups))
	}
	features := shared(groups)
	rows := make([][]row, len(groups))
	for g, examples := range groups {
		for _, e := range examples {
			rows[g] = append(rows[g], row{known(features, e.Features), e.Outcome})
		}
	}
	folds := deal(groups, min(valueFolds, filled))
	fits := map[int]Forecast{}
	out := make([]Forecast, len(groups))
	for g, fold := range folds {
		if _, ok := fits[fold]; !ok {
			fits[fold] = fit(features, rows, func(g int) bool { return folds[g] != fold })
		}
		out[g] = fits[fold]
	}
	return out, nil
}

// Value returns the estimated outcome of an attempt with these features. It is never
// outside of the range of the examples' outcomes.
func (e Forecast) Value(features []uint64) float64 {
	if e.weights == nil {
		return 0
	}
	x := known(e.features, features)
	return min(max(e.mean+dot(e.weights, x), e.low), e.high)
}

// shared numbers the features that occur in at least two groups, in the order in which
// a second group has them.
func shared(groups [][]Example) map[uint64]int32 {
	first, out := map[uint64]int{}, map[uint64]int32{}
	for g, examples := range groups {
		for _, e := range examples {
			for _, f := range e.Features {
				from, seen := first[f]
				if !seen {
					first[f] = g
					continue
				}
				if _, numbered := out[f]; !numbered && from != g {
					out[f] = int32(len(out)) + 1 // 0 is the intercept
				}
			}
		}
	}
	return out
}

// known returns the numbers of the features that have one, sorted and without repeats,
// with the intercept first.
func known(numbers map[uint64]int32, features []uint64) []int32 {
	out := make([]int32, 1, len(features)+1)
	for _, f := range features {
		if n, ok := numbers[f]; ok {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// deal assigns each group to a fold. Groups with examples take the folds in turn.
func deal(groups [][]Example, folds int) []int {
	out, next := make([]int, len(groups)), 0
	for g, examples := range groups {
		out[g] = next % folds
		if len(examples) > 0 {
			next++
		}
	}
	return out
}

// fit learns from the groups for which given returns true.
func fit(features map[uint64]int32, groups [][]row, given func(g int) bool) Forecast {
	var all, most, rest []row
	filled := 0
	for g, rows := range groups {
		if len(rows) == 0 || !given(g) {
			continue
		}
		all = append(all, rows...)
		if filled%3 == 2 {
			rest = append(rest, rows...)
		} else {
			most = append(most, rows...)
		}
		filled++
	}
	size := len(features) + 1
	strength := float64(defaultRidge)
	if len(rest) > 0 {
		strength = choose(most, rest, size)
	}
	e := Forecast{features: features, mean: meanOf(all), low: all[0].outcome, high: all[0].outcome}
	e.weights = solve(all, e.mean, strength, size)
	for _, r := range all {
		e.low, e.high = min(e.low, r.outcome), max(e.high, r.outcome)
	}
	return e
}

// choose returns the strength with which a model that is fitted to most estimates the
// outcomes of rest best.
func choose(most, rest []row, size int) float64 {
	best, least := 0.0, 0.0
	mean := meanOf(most)
	for _, strength := range ridges() {
		weights := solve(most, mean, strength, size)
		squares := 0.0
		for _, r := range rest {
			d := r.outcome - mean - dot(weights, r.features)
			squares += d * d
		}
		if best == 0 || squares < least {
			best, least = strength, squares
		}
	}
	return best
}

const (
	// solveRounds and solvePrecision end the search for a solution.
	solveRounds    = 60
	solvePrecision = 1e-8
)

// row is an example with numbered features. A feature has the value 1 if it is present.
type row struct {
	features []int32
	outcome  float64
}

func meanOf(rows []row) float64 {
	sum := 0.0
	for _, r := range rows {
		sum += r.outcome
	}
	return sum / float64(len(rows))
}

// dot returns the product of weights and a row.
func dot(weights []float64, features []int32) float64 {
	sum := 0.0
	for _, f := range features {
		sum += weights[f]
	}
	return sum
}

// lengthOf returns the mean number of features of a row.
func lengthOf(rows []row) float64 {
	n := 0
	for _, r := range rows {
		n += len(r.features)
	}
	return float64(n) / float64(len(rows))
}

// solve minimizes Σ(x·w − (y − mean))² + strength·length·|w|² by conjugate gradients that
// start at w = 0. length is the mean number of features of a row.
func solve(rows []row, mean, strength float64, size int) []float64 {
	strength *= lengthOf(rows)
	w := make([]float64, size)
	// The residual of the normal equations (XᵀX + strength·length)·w = Xᵀ(y − mean).
	residual := make([]float64, size)
	for _, r := range rows {
		add(residual, r, r.outcome-mean)
	}
	direction := append([]float64(nil), residual...)
	left := square(residual)
	enough := solvePrecision * solvePrecision * left
	image := make([]float64, size)
	for round := 0; round < solveRounds && left > enough; round++ {
		for i := range image {
			image[i] = strength * direction[i]
		}
		for _, r := range rows {
			add(image, r, dot(direction, r.features))
		}
		step := left / product(direction, image)
		for i := range w {
			w[i] += step * direction[i]
			residual[i] -= step * image[i]
		}
		before := left
		left = square(residual)
		for i := range direction {
			direction[i] = residual[i] + left/before*direction[i]
		}
	}
	return w
}

// add adds a multiple of a row to a sum of rows.
func add(sum []float64, r row, by float64) {
	for _, f := range r.features {
		sum[f] += by
	}
}

func square(x []float64) float64 { return product(x, x) }

func product(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}
