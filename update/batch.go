package update

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// noCalls is why a step whose attempts made no call trains nothing.
const noCalls = "no model call was recorded in %d rollouts: does the agent use the base URL it is given?"

// Credited is a batch and what is to be said about it.
type Credited struct {
	Batch   model.Batch
	Metrics map[string]float64
	// LeftOut lists why groups were left out of the batch. Their attempts are in it, with
	// the reason and without rows.
	LeftOut []string
	// Idle says why the batch has nothing to train; it is empty if it has. A step with
	// such a batch makes a version without an update.
	Idle string
}

// NewBatch turns the rewards and calls of a step's groups into rows with advantages. b has
// the batch's policy, number, vocabulary and the digests of its credit's inputs. baselines
// are the running baselines of the step before. A group is left out if one of its attempts
// can't be given credit. An error is a fault of the spec, or of the inputs of the credit.
func NewBatch(s spec.Spec, b model.Batch, baselines map[string]float64, groups [][]assign.Sample) (Credited, error) {
	g, err := giveCredit(s, baselines, groups)
	if err != nil {
		return Credited{}, err
	}
	b.Baselines = g.advantages.Baselines
	kept := 0
	for i, samples := range groups {
		fault := g.leftOut[i]
		for k, one := range samples {
			t := model.BatchTrajectory{Attempt: one.Address.String(), Group: i, Reward: rewardOf(one)}
			if fault == nil && g.idle == "" {
				t.Advantage = g.advantages.Trajectory[kept][k]
			}
			if fault != nil {
				t.LeftOut = fault.Error()
			}
			b.Trajectories = append(b.Trajectories, t)
			if fault != nil || g.idle != "" {
				continue
			}
			sequences, err := rows(one.Trajectory, len(b.Trajectories)-1, sharesOf(g.trajectories[kept][k], g.advantages, kept, k))
			if err != nil {
				return Credited{}, fmt.Errorf("attempt %s: %w", one.Address, err)
			}
			b.Rows = append(b.Rows, sequences...)
		}
		if fault == nil {
			kept++
		}
	}
	b.Count()
	out := Credited{Batch: b, Metrics: batchMetrics(s, b, groups, g), Idle: g.idle}
	for _, i := range slices.Sorted(maps.Keys(g.leftOut)) {
		out.LeftOut = append(out.LeftOut, g.leftOut[i].Error())
	}
	return out, nil
}

// rewardOf returns the final reward of an attempt, 0 if it has none that a batch can hold.
func rewardOf(one assign.Sample) float64 {
	if one.Reward == nil || math.IsNaN(*one.Reward) || math.IsInf(*one.Reward, 0) {
		return 0
	}
	return *one.Reward
}

// givenCredit is the credit of the groups that were not left out.
type givenCredit struct {
	trajectories [][]credit.Trajectory
	advantages   credit.Advantages
	leftOut      map[int]error // by group
	idle         string
}

// giveCredit assigns credit to the groups. It leaves out those with an attempt that can't
// be given any, and then those whose rewards are so large that advantages overflow.
func giveCredit(s spec.Spec, baselines map[string]float64, groups [][]assign.Sample) (givenCredit, error) {
	samples, calls := 0, 0
	for _, g := range groups {
		for _, one := range g {
			samples, calls = samples+1, calls+len(one.History)
		}
	}
	var g givenCredit
	var err error
	if g.leftOut, err = assign.Faults(s, groups); err != nil {
		return g, err
	}
	for {
		kept := assign.Without(groups, g.leftOut)
		switch {
		case calls == 0:
			g.idle = fmt.Sprintf(noCalls, samples)
		case len(kept) == 0:
			g.idle = "every group was left out"
		default:
			g.trajectories, g.advantages, err = assign.Advantages(s, baselines, kept)
			switch {
			case err == nil:
				err = overflow(g.advantages, kept)
			case assign.NothingToTrain(err):
				g.idle, err = err.Error(), nil
			}
		}
		if g.idle != "" {
			g.advantages = credit.Advantages{Baselines: baselines}
			return g, nil
		}
		if err == nil || !assign.Ungiven(err) {
			return g, err
		}
		largest, attempt := largestReward(groups, g.leftOut)
		g.leftOut[largest] = fmt.Errorf("%w; the largest reward of the step is %v, of %s", err, rewardOf(attempt), attempt.Address)
	}
}

// overflow returns an error if an advantage is too large for the numbers of a batch.
func overflow(given credit.Advantages, groups [][]assign.Sample) error {
	for g := range given.Call {
		for i := range given.Call[g] {
			for _, a := range given.Call[g][i] {
				if math.Abs(a) > math.MaxFloat32 {
					return fmt.Errorf("%w: the advantage of %s is %v", credit.ErrReward, groups[g][i].Address, a)
				}
			}
			for _, of := range [][][][][]float64{given.Token, given.Returns} {
				if of == nil {
					continue
				}
				for _, call := range of[g][i] {
					for _, a := range call {
						if math.Abs(a) > math.MaxFloat32 {
							return fmt.Errorf("%w: the advantage or return of a token of %s is %v", credit.ErrReward, groups[g][i].Address, a)
						}
					}
				}
			}
		}
	}
	return nil
}

// largestReward returns the group, of those not left out, with the reward of the largest
// magnitude, and the attempt that has it. Rewards by name and of calls count, too.
func largestReward(groups [][]assign.Sample, out map[int]error) (group int, attempt assign.Sample) {
	most := -1.0
	for g, samples := range groups {
		for _, one := range samples {
			size := math.Abs(rewardOf(one))
			for _, r := range one.Rewards {
				size = math.Max(size, math.Abs(r.Value))
			}
			if out[g] == nil && size > most {
				most, group, attempt = size, g, one
			}
		}
	}
	return group, attempt
}

// shares has the credit of the calls of one trajectory.
type shares struct {
	calls  []float64
	tokens [][]float64 // by call and trained token; nil if each token has the advantage of its call
	// returns has the critic's targets, by call and trained token. It is nil without a
	// critic.
	returns [][]float64
	skip    []bool // calls that are not trained
}

func sharesOf(t credit.Trajectory, given credit.Advantages, group, sample int) shares {
	s := shares{calls: given.Call[group][sample], skip: make([]bool, len(t.Calls))}
	if given.Token != nil {
		s.tokens = given.Token[group][sample]
	}
	if given.Returns != nil {
		s.returns = given.Returns[group][sample]
	}
	for k, c := range t.Calls {
		s.skip[k] = !c.Trains()
	}
	return s
}

// rows returns the merged sequences of a trajectory. Each sampled token has the advantage
// of its call. A call that is not trained is context, as the results of tools
// are; a sequence without any trained call is left out.
func rows(t trace.Trajectory, ordinal int, given shares) ([]model.BatchRow, error) {
	var out []model.BatchRow
	next := make([]int, len(t.History)) // the next trained token of each call
	for _, s := range trace.Merge(t.History) {
		n := len(s.Tokens)
		r := model.BatchRow{
			Row:     model.Row{Tokens: s.Tokens, Temperature: s.Temperature},
			Sampled: s.Sampled, Logprobs: s.Logprobs, Advantages: make([]float32, n), Calls: make([]int32, n), Trajectory: ordinal,
		}
		if given.returns != nil {
			r.Returns = make([]float32, n)
		}
		skipped, trained := false, false
		for i, call := range s.Call {
			r.Calls[i] = -1
			switch {
			case call < 0:
			case given.skip[call]:
				skipped = true
				r.Sampled[i], r.Logprobs[i] = false, 0
			default:
				trained = true
				r.Calls[i] = int32(t.History[call].Seq)
				given.fill(&r, i, call, next[call])
				next[call]++
			}
		}
		if skipped && !trained {
			continue
		}
		var err error
		if r.Forms, err = forms(s); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

// fill writes the credit of trained token k of a call to token i of a row.
func (s shares) fill(r *model.BatchRow, i, call, k int) {
	r.Advantages[i] = float32(s.calls[call])
	if s.tokens != nil {
		r.Advantages[i] = float32(s.tokens[call][k])
	}
	if s.returns != nil {
		r.Returns[i] = float32(s.returns[call][k])
	}
}

// forms returns the forms that restricted tokens of a sequence. A form that only ended a
// reply is left out.
func forms(s trace.Sequence) ([]model.BatchForm, error) {
	var out []model.BatchForm
	for _, f := range s.Forms {
		form := model.BatchForm{Start: f.Start, Length: f.Length}
		if err := json.Unmarshal(f.Form, &form.Form); err != nil {
			return nil, fmt.Errorf("form of a call: %w", err)
		}
		if form.Form.Masks() {
			out = append(out, form)
		}
	}
	return out, nil
}
