package update

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
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
			if len(s.Policies) == 0 {
				for k := range sequences {
					sequences[k].Policy = "" // there is only one
				}
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
func rows(t record.Trajectory, ordinal int, given shares) ([]model.BatchRow, error) {
	var out []model.BatchRow
	next := make([]int, len(t.History)) // the next trained token of each call
	for _, s := range record.Merge(t.History) {
		n := len(s.Tokens)
		r := model.BatchRow{
			Row: model.Row{Tokens: s.Tokens, Temperature: s.Temperature}, Policy: s.Policy,
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
func forms(s record.Sequence) ([]model.BatchForm, error) {
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

// minibatch is the part of a batch that one update learns from.
type minibatch struct {
	rows []int // indices of rows of the batch, ascending
	// denominators count only the minibatch's trajectories.
	denominators credit.Denominators
}

// minibatchDomain makes the order of groups independent of everything else that the seed
// decides.
const minibatchDomain = 0x6d696e69 // "mini"

// minibatches returns the updates of a step: t.Passes passes over the batch, each in
// t.Minibatches parts. A part holds whole groups, because the advantages of a group are
// relative to each other. Seed, step and pass decide which groups a part holds, so it
// changes with each pass. A part without a trained token is left out.
func minibatches(b model.Batch, t spec.Training, seed uint64, step int) []minibatch {
	groups := map[int]int{} // ordinal of each group that occurs
	for _, x := range b.Trajectories {
		if _, ok := groups[x.Group]; !ok {
			groups[x.Group] = len(groups)
		}
	}
	n, parts := len(groups), max(1, min(t.Minibatches, len(groups)))
	var out []minibatch
	for pass := range max(1, t.Passes) {
		key := shuffle.Key(minibatchDomain, seed, uint64(step), uint64(pass))
		part := make([]int, n) // of each group
		for i := range n {
			part[i] = shuffle.Index(key, n, i) * parts / n
		}
		for p := range parts {
			m := pick(b, func(trajectory int) bool { return part[groups[b.Trajectories[trajectory].Group]] == p })
			if m.denominators.Tokens() > 0 {
				out = append(out, m)
			}
		}
	}
	return out
}

func pick(b model.Batch, in func(trajectory int) bool) minibatch {
	m := minibatch{denominators: credit.Denominators{Trajectory: make([]int, len(b.Trajectories))}}
	for i, t := range b.Trajectories {
		if in(i) {
			m.denominators.Trajectory[i] = t.Trained
		}
	}
	for i, r := range b.Rows {
		if in(r.Trajectory) {
			m.rows = append(m.rows, i)
		}
	}
	m.rows = slices.Clip(m.rows)
	return m
}

// mismatchLimits has the limits, in nats, of how far the log-probabilities that an
// external server recorded may be from the trainer's. 0 means no limit.
type mismatchLimits struct {
	servers     int // number of external servers that sample; 0 if there is nothing to limit
	mean, worst float64
	sampled     model.VersionID // the one version that a step samples from
	// warnAbove is how far the mean may be from 0 without a warning if engine torch samples.
	// A larger mean does not end the run: there is no server that could be repaired, and
	// each version was checked with its canary.
	warnAbove float64
	torch     bool
	// several means that other versions than sampled sampled a part of the batch, which says
	// nothing about the mismatch.
	several bool
}

// limitsOf returns the limits of the step that makes a version. Conversations are sampled by
// several versions. Of those, the log-probabilities of the one that is trained can be compared
// with the trainer's.
func limitsOf(s spec.Spec, t Target) mismatchLimits {
	v := t.ID
	v.Number = max(0, v.Number-1-s.Training.Lag)
	if s.FromTraffic() {
		v.Number = t.Parent
	}
	l := mismatchLimits{sampled: v}
	switch server := s.Sampling.Server; {
	case server != nil:
		l.servers, l.mean, l.worst = len(server.URLs), server.MismatchMean(s.Training.Lag), server.WorstMismatch
	case s.Sampling.Engine == spec.EngineTorch:
		l.torch, l.warnAbove = true, spec.Server{}.MismatchMean(s.Training.Lag)
	}
	l.several = s.FromTraffic() && l.hasWorst()
	return l
}

// hasWorst reports whether the worst token is a useful metric. It is not with engine
// native, which samples and trains with the same bits.
func (l mismatchLimits) hasWorst() bool { return l.servers > 0 || l.torch }

// unusual returns the mean gap of a step's first update, what it usually is at most, and
// whether it is larger than that.
func (l mismatchLimits) unusual(gap mismatch) (mean, usual float64, warn bool) {
	mean, usual = gap.mean(), l.warnAbove
	if l.few(gap) {
		usual = l.mean
	}
	return mean, usual, usual > 0 && !(mean <= usual)
}

// few reports whether the version that is trained has too few tokens in a segment for a limit
// on their mean.
func (l mismatchLimits) few(gap mismatch) bool { return l.several && gap.tokens < minOfParent }

// gapOf returns the gap of an update's tokens.
func gapOf(s credit.Stats) mismatch { return mismatch{tokens: s.Count, sum: s.Gap, worst: s.GapMax} }

// minOfParent is the fewest tokens of the version that is trained by whose mean gap a segment
// is refused. Right after a promotion a segment has few, and one unusual token is no sign of a
// server that is wrong.
const minOfParent = 100

// check returns an error if the gap of the first update of a step exceeds a limit. The error
// has the gap of each server.
func (l mismatchLimits) check(gap mismatch, servers []mismatch) error {
	mean := gap.mean()
	if !l.few(gap) && l.mean > 0 && !(mean <= l.mean) {
		return l.refuse("train/mismatch", mean, "sampling.server.mismatch", l.mean, servers)
	}
	if l.worst > 0 && !(gap.worst <= l.worst) {
		return l.refuse("train/mismatch_max", gap.worst, "sampling.server.worst_mismatch", l.worst, servers)
	}
	return nil
}

func (l mismatchLimits) refuse(metric string, is float64, key string, limit float64, servers []mismatch) error {
	where := ""
	if len(servers) > 0 {
		where = "; by server: " + textOf(servers)
	}
	return Final(fmt.Errorf("%s is %.4g nats, and %s is %.4g: what the servers recorded are not the log-probabilities of version %s, which was to sample, so nothing is trained on them%s; fix the servers and start another run from the last version (`%s`, then model.base: DIRECTORY), or one with a higher limit: this one would meet the same record again",
		metric, is, key, limit, l.sampled, where, shell.Command("export", l.sampled.String(), "DIRECTORY")))
}
