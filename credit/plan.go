package credit

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Spread is how the credit of a call reaches its tokens.
type Spread string

// The spreads. An empty Spread is Uniform.
const (
	// Uniform gives every trained token of a call the call's advantage.
	Uniform Spread = "uniform"
	// GAE gives every trained token its own advantage, from a critic's values (PPO).
	GAE Spread = "gae"
)

// ErrPlan is wrapped when the parts of a plan do not fit each other.
var ErrPlan = errors.New("bad plan of credit")

// Plan describes how the rewards of a batch become advantages. With its zero value, every
// call gets the final reward as its advantage.
type Plan struct {
	// Normalization compares rewards. It has to be empty if an estimate of the return is
	// the baseline, as with TurnGAE, ValueDifference and GAE.
	Normalization Normalization
	// Assignment spreads credit over calls. Empty means Identical, the only assignment
	// that can be combined with GAE.
	Assignment Assignment
	// Tokens spreads the credit of a call over its tokens.
	Tokens Spread
	// Discount is γ: per call, and per token under GAE.
	Discount float64
	// Lambda is λ of TurnGAE and GAE.
	Lambda float64
	// StepWeight is ω of GiGPO.
	StepWeight float64
	// PerAgent compares an agent only with itself: credit is assigned to one agent after
	// the other, as if only its calls were trained. So each agent has its own baselines,
	// its own last call, and its own rewards of calls.
	PerAgent bool
	// Whiten brings the advantages of the batch's trained tokens to mean 0 and
	// deviation 1.
	Whiten bool
	// Rewards are the weights of the named rewards; an empty map is {"final": 1}.
	Rewards map[string]float64
	// Separate normalizes each named reward separately and adds up the results with their
	// weights (GDPO, arXiv:2601.05242), so that none drowns in the variance of another.
	// The calls' own rewards count as one more reward, of weight 1.
	Separate bool
	// Baselines are what rewards are compared with at level Running. The keys are
	// AllAgents and the results of OfAgent. They are Advantages.Baselines of the batch
	// before; a missing key means 0.
	Baselines map[string]float64
	// KL is subtracted from the rewards of tokens: Weight times an estimate (KL1, KL2 or
	// KL3) of the divergence of the sampler from the reference.
	KL KL
}

// Advantages assigns credit to the calls of a batch, by group and sample. Groups may
// differ in size. An attempt without calls has nothing to train, but still counts in the
// baseline of its group. An attempt whose calls are all skipped neither trains nor
// counts; one whose calls are all masked counts. Errors name the trajectory, and wrap ErrReward, ErrMissingReward, ErrEstimate,
// ErrCall, ErrPlan or ErrNothingToTrain. A batch gets either finite advantages throughout
// or an error.
func (p Plan) Advantages(groups [][]Trajectory) (Advantages, error) {
	if err := p.check(); err != nil {
		return Advantages{}, err
	}
	rewards, err := p.read(groups)
	if err != nil {
		return Advantages{}, err
	}
	groups = p.penalized(groups)
	out := p.empty(groups)
	whole := p.newBatch(groups, rewards, everyone)
	for i, a := range p.withBaseline(AllAgents).outcomes(whole) {
		out.Trajectory[whole.paths[i].group][whole.paths[i].sample] = a
	}
	if p.running() {
		out.Baselines = map[string]float64{}
		maps.Copy(out.Baselines, p.Baselines)
		out.Baselines[AllAgents] = whole.updated(p.Baselines[AllAgents])
	}
	if p.PerAgent {
		for _, agent := range whole.agents() {
			key, own := OfAgent(agent), p.newBatch(groups, rewards, func(c Call) bool { return c.Agent == agent })
			p.withBaseline(key).assign(own, out)
			if p.running() {
				out.Baselines[key] = own.updated(p.Baselines[key])
			}
		}
	} else {
		p.withBaseline(AllAgents).assign(whole, out)
	}
	out.mask(groups)
	if p.Whiten {
		out.whiten(whole)
	}
	if err := out.check(groups); err != nil {
		return Advantages{}, err
	}
	return out, nil
}

// check returns an error if the parts of the plan do not fit each other.
func (p Plan) check() error {
	if !slices.Contains(Assignments(), p.kind()) {
		return fmt.Errorf("%w %q", ErrAssignment, p.Assignment)
	}
	if !slices.Contains([]Spread{"", Uniform, GAE}, p.Tokens) {
		return fmt.Errorf("%w: no spread over tokens is called %q", ErrPlan, p.Tokens)
	}
	if p.Tokens == GAE && p.Assignment != "" && p.Assignment != Identical {
		return fmt.Errorf("%w: %q gives every token its own advantage, whatever %q gives its call", ErrPlan, p.Tokens, p.Assignment)
	}
	n := p.Normalization
	if p.estimates() && (n.Mean.some() || n.Std.some() || p.Separate) {
		return fmt.Errorf("%w: estimates are the baseline; leave out mean, std and separate rewards", ErrPlan)
	}
	if p.running() && (p.Separate || n.Std == Group || n.Std == ByMean) {
		return fmt.Errorf("%w: a running baseline is one of all rewards together, and goes with no deviation of a group", ErrPlan)
	}
	if !slices.Contains([]Level{"", None, Group, Batch, Running}, n.Mean) {
		return fmt.Errorf("%w: no mean is taken over %q", ErrPlan, n.Mean)
	}
	if !slices.Contains([]Level{"", None, Group, Batch, ByMean}, n.Std) {
		return fmt.Errorf("%w: no deviation is taken over %q", ErrPlan, n.Std)
	}
	if p.KL.Weight != 0 && !slices.Contains([]Estimator{KL1, KL2, KL3}, p.KL.Estimator) {
		return fmt.Errorf("%w: no estimate of KL in rewards is called %q", ErrPlan, p.KL.Estimator)
	}
	for _, x := range []float64{p.Discount, p.Lambda, p.StepWeight, p.KL.Weight} {
		if !finite(x) {
			return fmt.Errorf("%w: %v is not a weight", ErrPlan, x)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Rewards)) {
		if !finite(p.Rewards[name]) {
			return fmt.Errorf("%w: the weight of reward %q is %v", ErrPlan, name, p.Rewards[name])
		}
	}
	return nil
}

func (l Level) some() bool { return l != "" && l != None }

// critic reports whether the plan reads a critic's values.
func (p Plan) critic() bool { return p.Assignment == TurnGAE || p.Tokens == GAE }

// estimates reports whether an estimate of the return is the baseline.
func (p Plan) estimates() bool { return p.critic() || p.Assignment == ValueDifference }

// kind returns the assignment, by default Identical.
func (p Plan) kind() Assignment { return cmp.Or(p.Assignment, Identical) }

// runningDecay is the weight of a running baseline when a new reward is added to it
// (SPIRAL, arXiv:2506.24119).
const runningDecay = 0.95

// AllAgents is the key of Plan.Baselines for all agents together; OfAgent returns the key
// of one agent.
const AllAgents = "all"

// OfAgent returns the key of an agent's baseline.
func OfAgent(name string) string { return "agent " + name }

// running reports whether the plan compares rewards with running baselines.
func (p Plan) running() bool { return p.Normalization.Mean == Running }

// withBaseline returns the plan with one of its baselines.
func (p Plan) withBaseline(key string) Plan {
	p.Normalization.baseline = p.Baselines[key]
	return p
}

// updated returns a baseline after a batch. Each attempt with a trained call changes it,
// one after the other,
//
//	b ← 0.95·b + 0.05·R
//
// where R is the sum of the reward and of the trained calls' own rewards.
func (b batch) updated(baseline float64) float64 {
	for _, t := range b.paths {
		if len(t.trained) > 0 {
			baseline = runningDecay*baseline + (1-runningDecay)*(t.reward+t.earned())
		}
	}
	return baseline
}
