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
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
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
	// ErrAgents is wrapped when no call was made by an agent, or answered by a policy, that
	// is trained.
	ErrAgents = errors.New("no call that is trained")
	// ErrValues is wrapped when a critic's values belong to other attempts.
	ErrValues = errors.New("values of other attempts")
	// ErrJudgments is wrapped when a judge's scores belong to other attempts.
	ErrJudgments = errors.New("judgments of other attempts")
)

// Trajectories returns the samples in the form that package credit reads. The spec of one of
// several policies (spec.Spec.ForPolicy) leaves out the calls of the others.
func Trajectories(s spec.Spec, groups [][]Sample) ([][]credit.Trajectory, error) {
	trained, err := regexp.Compile("^(?:" + s.Credit.TrainAgents + ")$")
	if err != nil {
		return nil, fmt.Errorf("credit.train_agents: %w", err)
	}
	b := builder{spec: s, trained: trained, policy: policyOf(s)}
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
	policy   string // whose calls are trained; empty for all
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
	if b.policy != "" {
		return fmt.Errorf("%w: policy %s answered none of the calls, for example in attempt %s", ErrAgents, b.policy, b.first)
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
		call.Skip = call.Skip || b.policy != "" && c.Policy != b.policy
		call.Masked = !call.Skip && b.spec.Credit.Truncated == spec.TruncatedMask && c.CutOff()
		if one.Before != nil && !math.IsNaN(one.Before[k]) {
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
	failed := one.Outcome == record.AgentFailed
	if !failed && one.Outcome != record.OutcomeCompleted {
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
		if _, ok := out[name]; failed && (!ok || one.Failure == record.FailureTruncated) {
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

func trainedTokens(c record.Call) int {
	n := len(c.Completion)
	for _, no := range c.Untrained {
		if no {
			n--
		}
	}
	return n
}

// trainedValues returns the values before the trained tokens.
func trainedValues(c record.Call, values []float32) []float64 {
	out := make([]float64, 0, len(values))
	for i, v := range values {
		if c.Untrained == nil || !c.Untrained[i] {
			out = append(out, float64(v))
		}
	}
	return out
}

// shaping returns what is added to the final reward of an attempt for the total length of
// its replies and for their form; for one of several policies, of its replies alone.
func (b *builder) shaping(one Sample) float64 {
	length, unparsed := 0, 0
	for _, c := range one.History {
		if b.policy != "" && c.Policy != b.policy {
			continue
		}
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

// NeverTeaches reports whether no trained token of the groups gets an advantage, whatever
// rewards their attempts get. One possible reason: calls are compared only with calls of
// the same agent, and each attempt has a different agent. NeverTeaches tries other
// rewards, assigns credit and looks at the advantages. It does not change the samples.
func NeverTeaches(s spec.Spec, groups [][]Sample) (bool, error) {
	s.Grader.Limit = 0 // the rewards that are tried do not come from the grader
	for _, pattern := range patterns() {
		trajectories, given, err := Advantages(s, nil, withRewards(s, groups, pattern))
		if err != nil {
			return false, err
		}
		for g := range trajectories {
			if given.Teaches(trajectories, g) {
				return false, nil
			}
		}
	}
	return true, nil
}

// patterns returns functions that choose a reward for each sample of a group. No estimate
// and no shaping can make the samples equal under all of them.
func patterns() []func(sample int) float64 {
	return []func(int) float64{
		func(i int) float64 { return float64(i%2) * 1024 },
		func(i int) float64 { return float64((i/2)%2) * 512 },
		func(i int) float64 { return float64(1+i*i) * 64 },
	}
}

// withRewards returns a copy of the groups in which each attempt is completed and has the
// reward of a pattern.
func withRewards(s spec.Spec, groups [][]Sample, reward func(int) float64) [][]Sample {
	names := []string{credit.Final}
	for _, one := range s.TrainedSpecs() {
		names = slices.AppendSeq(names, maps.Keys(one.Credit.Rewards))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	out := make([][]Sample, len(groups))
	for g, samples := range groups {
		out[g] = slices.Clone(samples)
		for i := range out[g] {
			one, value := &out[g][i], reward(i)
			one.Outcome, one.Reward, one.Rewards = record.OutcomeCompleted, &value, nil
			for _, name := range names {
				one.Rewards = append(one.Rewards, record.Reward{Address: one.Address, Name: name, Value: value})
			}
		}
	}
	return out
}

// NothingToTrain reports whether err says that no call of the groups can be trained. The
// step then makes a version without an update.
func NothingToTrain(err error) bool {
	return errors.Is(err, ErrAgents) || errors.Is(err, credit.ErrNothingToTrain)
}

// Ungiven reports whether err says that an attempt can't be given credit, because of its
// outcome or its rewards. Its group is then left out of the batch.
func Ungiven(err error) bool {
	for _, of := range []error{ErrOutcome, ErrLimit, ErrMinimum, credit.ErrReward, credit.ErrMissingReward} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

// Faults returns, by group, why an attempt of the group can't be given credit. Groups
// without such an attempt are not in the result. It returns an error for a fault of the
// spec.
func Faults(s spec.Spec, groups [][]Sample) (map[int]error, error) {
	out := map[int]error{}
	for _, one := range s.TrainedSpecs() {
		for g := range groups {
			if out[g] != nil {
				continue
			}
			trajectories, err := Trajectories(one, groups[g:g+1])
			if err == nil {
				for _, t := range trajectories[0] {
					if _, err = one.Credit.Plan().Reward(t); err != nil {
						break
					}
				}
			}
			switch {
			case err == nil, NothingToTrain(err):
			case Ungiven(err):
				out[g] = err
			default:
				return nil, err
			}
		}
	}
	return out, nil
}

// Without returns the groups that are not in out.
func Without(groups [][]Sample, out map[int]error) [][]Sample {
	var kept [][]Sample
	for g := range groups {
		if out[g] == nil {
			kept = append(kept, groups[g])
		}
	}
	return kept
}

// FlatGroups reports, for each group, whether it teaches nothing: all advantages of its
// trained tokens would be 0, or it has no such token, or one of its attempts can't be given
// credit. It may be used only for credit that
// compares the samples of a group with each other alone, so that other groups do not
// matter; see spec.Spec.FlatByCredit.
func FlatGroups(s spec.Spec, groups [][]Sample) ([]bool, error) {
	out := make([]bool, len(groups))
	for g := range groups {
		trajectories, given, err := Advantages(s, nil, groups[g:g+1])
		if NothingToTrain(err) || Ungiven(err) {
			out[g] = true
			continue
		}
		if err != nil {
			return nil, err
		}
		out[g] = !given.Teaches(trajectories, 0)
	}
	return out, nil
}
