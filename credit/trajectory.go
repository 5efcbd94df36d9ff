package credit

import (
	"errors"
	"fmt"
	"math"
)

// Sentinels of trajectories that cannot be given credit. The errors that wrap them name
// the trajectory, and the call if one call is the cause.
var (
	// ErrMissingReward is wrapped when a trajectory lacks a reward that has a weight.
	ErrMissingReward = errors.New("missing reward")
	// ErrEstimate is wrapped when a critic's values, an estimate of success or a
	// judge's score is missing or not a number.
	ErrEstimate = errors.New("bad estimate")
	// ErrCall is wrapped when a call contradicts itself.
	ErrCall = errors.New("bad call")
	// ErrNothingToTrain is wrapped when no trajectory has a token to train.
	ErrNothingToTrain = errors.New("nothing to train")
)

// Trajectory is what credit reads about one attempt. It is never changed.
type Trajectory struct {
	// Name is the attempt's address, for errors.
	Name string
	// Rewards are the named rewards of the whole attempt, including "final". Shaping has
	// already been applied to them.
	Rewards map[string]float64
	// Calls are in the order of recording.
	Calls []Call
}

// Call is what credit reads about one call.
type Call struct {
	Agent string
	// State names the state in which the policy acted. Calls of a group with equal states
	// are compared (GiGPO); an empty state is like no other.
	State string
	// Reward is the call's own reward: the weighted sum of its signals and emitted
	// rewards.
	Reward float64
	// Tokens is the number of trained tokens of its completion.
	Tokens int
	// Skip marks a call of an agent that is not trained: it gets no credit, and its own
	// reward counts for nobody.
	Skip bool
	// Masked marks a call whose tokens are not trained although it counts in everything
	// else: its attempt is compared with others, and it has its place among the calls.
	// It gets no advantage, and its tokens have no penalty and count nowhere.
	Masked bool
	// Sampled and Reference are the log-probabilities of each trained token under the
	// policy that sampled it and under the reference. They are nil for plans without KL.
	Sampled, Reference []float64
	// Values are a critic's estimates of the return before each trained token. They are
	// nil without a critic.
	Values []float64
	// Before is the estimated reward of the attempt before the call.
	Before float64
	// Judged is a judge's score of the call.
	Judged float64

	// penalties are added to the rewards of the trained tokens. They are nil without KL.
	penalties []float64
}

// earned returns the sum of the call's own reward and its penalties, which are signed.
func (c Call) earned() float64 {
	sum := c.Reward
	for _, p := range c.penalties {
		sum += p
	}
	return sum
}

// Trains reports whether the tokens of the call are trained.
func (c Call) Trains() bool { return !c.Skip && !c.Masked }

// tokens returns the number of tokens that are trained.
func (t Trajectory) tokens() int {
	n := 0
	for _, c := range t.Calls {
		if c.Trains() {
			n += c.Tokens
		}
	}
	return n
}

// masked returns the number of masked calls.
func (t Trajectory) masked() int {
	n := 0
	for _, c := range t.Calls {
		if c.Masked {
			n++
		}
	}
	return n
}

// check refuses numbers that are not finite, and calls without the estimates that the
// plan needs.
func (t Trajectory) check(p Plan) error {
	for k, c := range t.Calls {
		if c.Tokens < 0 {
			return fmt.Errorf("%w: call %d of %s has %d tokens", ErrCall, k, t.Name, c.Tokens)
		}
		if c.Skip {
			continue
		}
		switch {
		case !finite(c.Reward):
			return fmt.Errorf("%w: call %d of %s earned %v", ErrReward, k, t.Name, c.Reward)
		case p.critic() && len(c.Values) != c.Tokens:
			return fmt.Errorf("%w: call %d of %s has %d values for %d tokens", ErrEstimate, k, t.Name, len(c.Values), c.Tokens)
		case p.Assignment == ValueDifference && !finite(c.Before):
			return fmt.Errorf("%w: success before call %d of %s is %v", ErrEstimate, k, t.Name, c.Before)
		case p.Assignment == Judge && !finite(c.Judged):
			return fmt.Errorf("%w: the score of call %d of %s is %v", ErrEstimate, k, t.Name, c.Judged)
		}
		if err := p.KL.check(c); err != nil {
			return fmt.Errorf("call %d of %s: %w", k, t.Name, err)
		}
		if p.critic() {
			if i := infinite(c.Values); i >= 0 {
				return fmt.Errorf("%w: the value before token %d of call %d of %s is %v", ErrEstimate, i, k, t.Name, c.Values[i])
			}
		}
	}
	return nil
}

// finite reports whether x is neither infinite nor NaN.
func finite(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }

// infinite returns the index of the first number that is not finite, or −1.
func infinite(x []float64) int {
	for i, v := range x {
		if !finite(v) {
			return i
		}
	}
	return -1
}

// calls assigns the trained tokens of a row to their calls, which are numbered from 0 in
// the order of their first tokens.
type calls struct {
	of     []int // the call of each token of the row; -1 if the token is not trained
	tokens []int // number of trained tokens of each call
}

func newCalls(t Tokens) calls {
	c := calls{of: make([]int, len(t.Weight))}
	numbers := map[int32]int{}
	for i, w := range t.Weight {
		if w == 0 {
			c.of[i] = -1
			continue
		}
		var name int32
		if t.Call != nil {
			name = t.Call[i]
		}
		n, ok := numbers[name]
		if !ok {
			n = len(numbers)
			numbers[name] = n
			c.tokens = append(c.tokens, 0)
		}
		c.of[i] = n
		c.tokens[n]++
	}
	return c
}

// sums adds x up over the trained tokens of each call.
func (c calls) sums(x func(token int) float64) []float64 {
	out := make([]float64, len(c.tokens))
	for i, call := range c.of {
		if call >= 0 {
			out[call] += x(i)
		}
	}
	return out
}

// means returns the mean of x over the trained tokens of each call.
func (c calls) means(x func(token int) float64) []float64 {
	out := c.sums(x)
	for call := range out {
		out[call] /= float64(c.tokens[call])
	}
	return out
}

// spread returns, for each trained token, the number of its call.
func (c calls) spread(x []float64) []float64 {
	out := make([]float64, len(c.of))
	for i, call := range c.of {
		if call >= 0 {
			out[i] = x[call]
		}
	}
	return out
}
