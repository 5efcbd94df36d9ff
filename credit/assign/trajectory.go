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

// Sentinels of what can't be given credit, beside those of package credit.
var (
	// ErrOutcome is wrapped when an attempt does not count.
	ErrOutcome = errors.New("attempt does not count")
	// ErrLimit is wrapped when a reward is beyond the range that the spec declares.
	ErrLimit = errors.New("reward beyond grader.limit")
	// ErrMinimum is wrapped when a final reward is below the least that the spec
	// declares.
	ErrMinimum = errors.New("reward below grader.minimum")
	// ErrAgents is wrapped when no call is of an agent that is trained.
	ErrAgents = errors.New("no call of an agent that is trained")
	// ErrValues is wrapped when a critic's values are not those of the step.
	ErrValues = errors.New("values of other attempts")
	// ErrJudgments is wrapped when a judge's scores are not those of the step.
	ErrJudgments = errors.New("judgments of other attempts")
)

// Trajectories are the samples as package credit takes them.
func Trajectories(s spec.Spec, groups [][]Sample) ([][]credit.Trajectory, error) {
	trained, err := regexp.Compile("^(?:" + s.Credit.TrainAgents + ")$")
	if err != nil {
		return nil, fmt.Errorf("credit.train_agents: %w", err)
	}
	m := maker{spec: s, trained: trained}
	out := make([][]credit.Trajectory, len(groups))
	for g, samples := range groups {
		for _, one := range samples {
			t, err := m.trajectory(one)
			if err != nil {
				return nil, err
			}
			out[g] = append(out[g], t)
		}
	}
	return out, m.verdict()
}

// maker makes trajectories and remembers whose calls it saw.
type maker struct {
	spec    spec.Spec
	trained *regexp.Regexp
	calls   int
	taken   int
	first   string // an attempt with calls
	agents  map[string]bool
}

// verdict is an error if calls were made, but none by an agent that is trained.
func (m *maker) verdict() error {
	if m.calls == 0 || m.taken > 0 {
		return nil
	}
	return fmt.Errorf("%w: credit.train_agents %q matches none of %s, for example in attempt %s",
		ErrAgents, m.spec.Credit.TrainAgents, strings.Join(slices.Sorted(maps.Keys(m.agents)), ", "), m.first)
}

func (m *maker) trajectory(one Sample) (credit.Trajectory, error) {
	t := credit.Trajectory{Name: one.Address.String(), Calls: make([]credit.Call, len(one.History))}
	var err error
	if t.Rewards, err = m.rewards(one); err != nil {
		return t, err
	}
	for k, c := range one.History {
		call := credit.Call{Agent: c.Agent, Tokens: trainedTokens(c)}
		if one.Calls != nil {
			seen := one.Calls[k]
			call.Agent, call.State, call.Reward = seen.Agent, seen.State, seen.Earned(m.spec.Credit.Signals)
		}
		if m.spec.Credit.TrainAgents != "" {
			call.Skip = !m.trained.MatchString(call.Agent)
		}
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
		m.note(t.Name, call)
		t.Calls[k] = call
	}
	return t, nil
}

func (m *maker) note(name string, c credit.Call) {
	if m.calls == 0 {
		m.first, m.agents = name, map[string]bool{}
	}
	m.calls++
	m.agents[c.Agent] = true
	if !c.Skip {
		m.taken++
	}
}

// rewards are the named rewards of an attempt, shaped. One whose agent failed has
// agent.failure_reward under each name that it did not come to post.
func (m *maker) rewards(one Sample) (map[string]float64, error) {
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
	for name := range m.spec.Credit.Rewards {
		if _, ok := out[name]; !ok && failed {
			out[name] = m.spec.Agent.FailureReward
		}
	}
	if err := m.within(one, out, failed); err != nil {
		return nil, err
	}
	out[credit.Final] += m.shaping(one)
	return out, nil
}

// within is an error if a reward that counts is beyond what the spec declares: any of
// them beyond grader.limit, the final one below grader.minimum. What
// it gives to failed agents is declared too.
func (m *maker) within(one Sample, rewards map[string]float64, failed bool) error {
	limit := m.spec.Grader.Limit
	counts := slices.Sorted(maps.Keys(m.spec.Credit.Rewards))
	if len(counts) == 0 {
		counts = []string{credit.Final}
	}
	for _, name := range counts {
		v, ok := rewards[name]
		if ok && limit > 0 && math.Abs(v) > limit && (!failed || v != m.spec.Agent.FailureReward) {
			return fmt.Errorf("%w: reward %q of %s is %v, the limit %v", ErrLimit, name, one.Address, v, limit)
		}
		if least := m.spec.Grader.Minimum; name == credit.Final && least != nil && v < *least && (!failed || v != m.spec.Agent.FailureReward) {
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

// trainedValues are those before the trained tokens.
func trainedValues(c trace.Call, values []float32) []float64 {
	out := make([]float64, 0, len(values))
	for i, v := range values {
		if c.Untrained == nil || !c.Untrained[i] {
			out = append(out, float64(v))
		}
	}
	return out
}
