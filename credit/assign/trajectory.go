package assign

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// Sentinels for attempts that can't be given credit, in addition to those of package
// credit.
var (
	// ErrOutcome is wrapped when an attempt does not count.
	ErrOutcome = errors.New("attempt does not count")
	// ErrLimit is wrapped when a reward is beyond the range that the spec declares.
	ErrLimit = errors.New("reward beyond grader.limit")
	// ErrMinimum is wrapped when a final reward is below the least that the spec
	// declares.
	ErrMinimum = errors.New("reward below grader.minimum")
	// ErrAgents is wrapped when no call was made by an agent that is trained.
	ErrAgents = errors.New("no call of an agent that is trained")
	// ErrValues is wrapped when a critic's values belong to other attempts.
	ErrValues = errors.New("values of other attempts")
	// ErrJudgments is wrapped when a judge's scores belong to other attempts.
	ErrJudgments = errors.New("judgments of other attempts")
)

// Trajectories returns the samples in the form that package credit reads.
func Trajectories(s spec.Spec, groups [][]Sample) ([][]credit.Trajectory, error) {
	trained, err := regexp.Compile("^(?:" + s.Credit.TrainAgents + ")$")
	if err != nil {
		return nil, fmt.Errorf("credit.train_agents: %w", err)
	}
	b := builder{spec: s, trained: trained}
	out := make([][]credit.Trajectory, len(groups))
	for g, samples := range groups {
		for _, one := range samples {
			t, err := b.trajectory(one)
			if err != nil {
				return nil, err
			}
			out[g] = append(out[g], t)
		}
	}
	return out, b.checkAgents()
}

// builder makes trajectories. It counts the calls, and remembers which agents made them.
type builder struct {
	spec     spec.Spec
	trained  *regexp.Regexp
	calls    int
	included int    // calls of agents that are trained
	first    string // the first attempt with calls
	agents   map[string]bool
}

// checkAgents returns an error if there are calls, but none by a trained agent.
func (b *builder) checkAgents() error {
	if b.calls == 0 || b.included > 0 {
		return nil
	}
	return fmt.Errorf("%w: credit.train_agents %q matches none of %s, for example in attempt %s",
		ErrAgents, b.spec.Credit.TrainAgents, strings.Join(slices.Sorted(maps.Keys(b.agents)), ", "), b.first)
}

func (b *builder) trajectory(one Sample) (credit.Trajectory, error) {
	t := credit.Trajectory{Name: one.Address.String(), Calls: make([]credit.Call, len(one.History))}
	var err error
	if t.Rewards, err = b.rewards(one); err != nil {
		return t, err
	}
	for k, c := range one.History {
		call := credit.Call{Agent: c.Agent, Tokens: trainedTokens(c)}
		if one.Calls != nil {
			seen := one.Calls[k]
			call.Agent, call.State, call.Reward = seen.Agent, seen.State, seen.Earned(b.spec.Credit.Signals)
		}
		if b.spec.Credit.TrainAgents != "" {
			call.Skip = !b.trained.MatchString(call.Agent)
		}
		call.Masked = !call.Skip && b.spec.Credit.Truncated == spec.TruncatedMask && c.CutOff()
		if one.Before != nil {
			call.Before = one.Before[k]
		}
		if one.Values != nil {
			call.Values = trainedValues(c, one.Values[k])
		}
		if one.Reference != nil {
			call.Sampled, call.Reference = trainedValues(c, c.Logprobs), trainedValues(c, one.Reference[k])
		}
		if one.Judged != nil {
			call.Judged = one.Judged[k]
		}
		b.count(t.Name, call)
		t.Calls[k] = call
	}
	return t, nil
}

func (b *builder) count(name string, c credit.Call) {
	if b.calls == 0 {
		b.first, b.agents = name, map[string]bool{}
	}
	b.calls++
	b.agents[c.Agent] = true
	if !c.Skip {
		b.included++
	}
}

// rewards returns the named rewards of an attempt, with shaping. An attempt whose agent
// failed gets agent.failure_reward under each name that it did not post. If it failed only
// because a reply was cut off, its agent had no reason to post less, so it gets
// agent.failure_reward under each name.
func (b *builder) rewards(one Sample) (map[string]float64, error) {
	failed := one.Outcome == trace.AgentFailed
	if !failed && one.Outcome != trace.Completed {
		return nil, fmt.Errorf("%w: the outcome of %s is %q", ErrOutcome, one.Address, one.Outcome)
	}
	if one.Reward == nil {
		return nil, fmt.Errorf("%w: %s has no reward on record", credit.ErrMissingReward, one.Address)
	}
	out := map[string]float64{}
	for _, w := range one.Rewards {
		if w.CallID == "" {
			out[w.Name] = w.Value
		}
	}
	out[credit.Final] = *one.Reward
	for name := range b.spec.Credit.Rewards {
		if _, ok := out[name]; failed && (!ok || one.Failure == trace.FailureTruncated) {
			out[name] = b.spec.Agent.FailureReward
		}
	}
	if err := b.checkLimits(one, out, failed); err != nil {
		return nil, err
	}
	out[credit.Final] += b.shaping(one)
	return out, nil
}

// checkLimits returns an error for a reward that has a weight and is outside of the
// spec's limits: any reward beyond grader.limit, and a final reward below grader.minimum.
// agent.failure_reward is always within the limits.
func (b *builder) checkLimits(one Sample, rewards map[string]float64, failed bool) error {
	limit := b.spec.Grader.Limit
	counts := slices.Sorted(maps.Keys(b.spec.Credit.Rewards))
	if len(counts) == 0 {
		counts = []string{credit.Final}
	}
	for _, name := range counts {
		v, ok := rewards[name]
		if ok && limit > 0 && math.Abs(v) > limit && (!failed || v != b.spec.Agent.FailureReward) {
			return fmt.Errorf("%w: reward %q of %s is %v, the limit %v", ErrLimit, name, one.Address, v, limit)
		}
		if least := b.spec.Grader.Minimum; name == credit.Final && least != nil && v < *least && (!failed || v != b.spec.Agent.FailureReward) {
			return fmt.Errorf("%w: reward %q of %s is %v, the least %v", ErrMinimum, name, one.Address, v, *least)
		}
	}
	return nil
}

func trainedTokens(c trace.Call) int {
	n := len(c.Completion)
	for _, no := range c.Untrained {
		if no {
			n--
		}
	}
	return n
}

// trainedValues returns the values before the trained tokens.
func trainedValues(c trace.Call, values []float32) []float64 {
	out := make([]float64, 0, len(values))
	for i, v := range values {
		if c.Untrained == nil || !c.Untrained[i] {
			out = append(out, float64(v))
		}
	}
	return out
}

// shaping returns what is added to the final reward of an attempt for the total length of
// its replies and for their form.
func (b *builder) shaping(one Sample) float64 {
	length, unparsed := 0, 0
	for _, c := range one.History {
		length += len(c.Completion)
		if c.ParseError != "" {
			unparsed++
		}
	}
	sum := credit.FormatPenalty(unparsed, b.spec.Credit.FormatPenalty)
	if o := b.spec.Credit.Overlong; o != nil {
		sum += credit.Overlong(*o).Shape(length)
	}
	return sum
}
