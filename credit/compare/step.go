package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/assign"
	"github.com/fulgurite/fulgurite/credit/signals"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// Store reads the records that a comparison needs.
type Store interface {
	assign.Attempts
	assign.Batches
	Run(ctx context.Context, name string) (record.Run, error)
	Batches(ctx context.Context, run, policy string) ([]record.Batch, error)
}

// Sentinels of steps and attempts that can't be compared.
var (
	// ErrNoBatch is wrapped when a step has no batch yet.
	ErrNoBatch = errors.New("no batch")
	// ErrNotTrained is wrapped when a step was not trained on an attempt.
	ErrNotTrained = errors.New("attempt is not in the batch")
)

// Step is a trained step whose credit is computed again.
type Step struct {
	Run, Policy string
	Number      int
	Spec        spec.Spec

	groups [][]assign.Sample
	batch  model.Batch
	// baselines are the running ones after the step before.
	baselines map[string]float64
	// learned says why no estimates could be learned. It is nil if they could be.
	learned error
	// valued are the policies whose critics' own values are on record; the only policy is "".
	valued []string
}

// Open reads step number of a run. If number is 0, it reads the last step that has a
// batch.
func Open(ctx context.Context, s Store, blobs assign.Blobs, run, policy string, number int) (*Step, error) {
	r, err := s.Run(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", run, err)
	}
	out := &Step{Run: run, Policy: policy, Number: number}
	if out.Spec, err = spec.Stored(r.Spec); err != nil {
		return nil, fmt.Errorf("decode the spec of run %s: %w", run, err)
	}
	if err := out.checkBatch(ctx, s); err != nil {
		return nil, err
	}
	source := assign.Source{Attempts: s, Batches: s, Blobs: blobs, Run: run, Policy: policy}
	if out.groups, out.batch, err = source.Step(ctx, out.Number); err != nil {
		return nil, err
	}
	if out.baselines, err = source.Baselines(ctx, out.Spec, out.Number); err != nil {
		return nil, err
	}
	if err := source.Observe(ctx, out.groups); err != nil {
		return nil, err
	}
	earlier, err := source.Earlier(ctx, out.Number)
	if err != nil {
		return nil, err
	}
	out.learned = assign.Estimate(out.Spec, earlier, out.groups)
	if err := out.setReference(ctx, blobs); err != nil {
		return nil, err
	}
	if err := out.setJudgments(ctx, blobs); err != nil {
		return nil, err
	}
	return out, out.setValues(ctx, blobs)
}

// checkBatch returns an error if the step has no batch. It replaces the number 0 by the
// last step that has one.
func (s *Step) checkBatch(ctx context.Context, from Store) error {
	batches, err := from.Batches(ctx, s.Run, s.Policy)
	if err != nil {
		return fmt.Errorf("list the batches of run %s: %w", s.Run, err)
	}
	last := 0
	for _, b := range batches {
		if b.Step == s.Number {
			return nil
		}
		last = max(last, b.Step)
	}
	switch {
	case last == 0:
		return fmt.Errorf("%w: run %s has not made one yet", ErrNoBatch, s.Run)
	case s.Number == 0:
		s.Number = last
		return nil
	}
	return fmt.Errorf("%w of step %d of run %s: the last one is that of step %d", ErrNoBatch, s.Number, s.Run, last)
}

// setJudgments sets the judge's score of each call, if the step had a judge.
func (s *Step) setJudgments(ctx context.Context, blobs assign.Blobs) error {
	if s.batch.Judgments == "" {
		return nil
	}
	data, err := blobs.Get(ctx, s.batch.Judgments)
	if err != nil {
		return fmt.Errorf("read the judgments of step %d: %w", s.Number, err)
	}
	var j record.Judgments
	if err = json.Unmarshal(data, &j); err == nil {
		j.Scores = credited(s.batch, j.Scores)
		err = assign.SetJudgments(s.groups, j)
	}
	if err != nil {
		return fmt.Errorf("the judgments %s of step %d: %w", s.batch.Judgments, s.Number, err)
	}
	return nil
}

// credited returns those of the numbers of a step's attempts, in the order of its batch,
// that belong to attempts with credit. Critic, reference and judge look at all attempts of
// a step, and only then groups are left out of the batch. Numbers of another step stay as
// they are, to be refused.
func credited[T any](b model.Batch, all []T) []T {
	if len(all) != len(b.Trajectories) {
		return all
	}
	var out []T
	for i, t := range b.Trajectories {
		if t.LeftOut == "" {
			out = append(out, all[i])
		}
	}
	return out
}

// readValues reads a model's numbers from a blob and sets each call's part of them.
func (s *Step) readValues(ctx context.Context, blobs assign.Blobs, name, digest string, set func([][]assign.Sample, model.Values) error) error {
	data, err := blobs.Get(ctx, digest)
	if err != nil {
		return fmt.Errorf("read %s of step %d: %w", name, s.Number, err)
	}
	v, err := hf.DecodeValues(data)
	if err == nil {
		v.Calls = credited(s.batch, v.Calls)
		err = set(s.groups, v)
	}
	if err != nil {
		return fmt.Errorf("%s %s of step %d: %w", name, digest, s.Number, err)
	}
	return nil
}

// setReference sets each call's log-probabilities under version 0, if they are part of
// its reward.
func (s *Step) setReference(ctx context.Context, blobs assign.Blobs) error {
	if s.batch.Reference == "" {
		return nil
	}
	return s.readValues(ctx, blobs, "the log-probabilities under version 0", s.batch.Reference, assign.SetReference)
}

// setValues sets the critic's values of each call or, if there are none, its estimate. One of
// several policies may have a critic, and another none.
func (s *Step) setValues(ctx context.Context, blobs assign.Blobs) error {
	if s.batch.Values != "" {
		s.valued = critics(s.Spec)
		if err := s.readValues(ctx, blobs, "the critic's values", s.batch.Values, assign.SetValues); err != nil {
			return err
		}
	}
	if s.learned != nil {
		return nil
	}
	for _, samples := range s.groups {
		for i := range samples {
			one := &samples[i]
			if one.Values == nil {
				one.Values = make([][]float32, len(one.History))
			}
			for k, c := range one.History {
				if slices.Contains(s.valued, "") || slices.Contains(s.valued, c.Policy) {
					continue
				}
				one.Values[k] = make([]float32, len(c.Completion))
				for t := range one.Values[k] {
					if before := one.Before[k]; !math.IsNaN(before) {
						one.Values[k][t] = float32(before)
					}
				}
			}
		}
	}
	return nil
}

// critics returns the policies whose credit needs a critic; the only policy of a run is "".
func critics(s spec.Spec) []string {
	var out []string
	for _, one := range s.TrainedSpecs() {
		if !one.Credit.UsesCritic() {
			continue
		}
		if len(s.Policies) == 0 {
			return []string{""}
		}
		out = append(out, one.PolicyNames()...)
	}
	return out
}

// lacksValues reports whether a setting needs values of a critic that are not on record.
func (s *Step) lacksValues(of spec.Spec) bool {
	return slices.ContainsFunc(critics(of), func(policy string) bool { return !slices.Contains(s.valued, policy) })
}

// outcome is the credit of one setting.
type outcome struct {
	Setting
	trajectories [][]credit.Trajectory
	given        credit.Advantages
}

// assign assigns credit by a setting.
func (s *Step) assign(one Setting) (outcome, error) {
	own := len(critics(one.Spec)) > 0 && !s.lacksValues(one.Spec) // the critics' values are on record and used
	if estimates(one.Spec.Credit) && s.learned != nil && !own {
		return outcome{}, fmt.Errorf("%s: %w", one.Name, s.learned)
	}
	trajectories, given, err := assign.Advantages(one.Spec, s.baselines, s.groups)
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w", one.Name, err)
	}
	return outcome{one, trajectories, given}, nil
}

// token returns the advantage of trained token i of a call.
func (o outcome) token(group, sample, call, i int) float64 {
	if o.given.Token != nil {
		return o.given.Token[group][sample][call][i]
	}
	return o.given.Call[group][sample][call]
}

// difference returns the largest difference between an outcome's advantages and those in
// the batch.
func (s *Step) difference(o outcome) (float64, error) {
	type call struct{ trajectory, seq int }
	next, most := map[call]int{}, 0.0
	at := make([][2]int, len(s.batch.Trajectories)) // group and sample of each trajectory with credit
	samples := make([]int, len(s.groups))
	for i, t := range s.batch.Trajectories {
		if t.LeftOut == "" {
			at[i] = [2]int{t.Group, samples[t.Group]}
			samples[t.Group]++
		}
	}
	for _, r := range s.batch.Rows {
		for t, sampled := range r.Sampled {
			if !sampled {
				continue
			}
			c := call{r.Trajectory, int(r.Calls[t])}
			g, i := at[c.trajectory][0], at[c.trajectory][1]
			if calls := o.trajectories[g][i].Calls; c.seq >= len(calls) || next[c] >= calls[c.seq].Tokens {
				return 0, fmt.Errorf("batch of step %d: %s has more tokens of call %d than are on record", s.Number, s.batch.Trajectories[c.trajectory].Attempt, c.seq)
			}
			most = math.Max(most, math.Abs(o.token(g, i, c.seq, next[c])-float64(r.Advantages[t])))
			next[c]++
		}
	}
	return most, nil
}

// indices returns the group and the sample of an attempt.
func (s *Step) indices(a record.Address) (group, sample int, err error) {
	for g, samples := range s.groups {
		for i, one := range samples {
			if one.Address == a {
				return g, i, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("%w of step %d of run %s: %s", ErrNotTrained, s.Number, s.Run, a)
}

// Calls are the calls of one attempt with the advantages that each setting gives them.
// The keys of its JSON are a public contract.
type Calls struct {
	Attempt  string   `json:"attempt"`
	Reward   float64  `json:"reward"`
	Settings []string `json:"settings"`
	List     []Call   `json:"calls"`
}

// Call is one call with its signals and advantages.
type Call struct {
	Number int `json:"call"`
	signals.Call
	// Trained is false for a call of an agent that is not trained, and for a masked one.
	Trained bool `json:"trained"`
	// Masked is true for a reply that was cut off and is not trained for that reason.
	Masked bool `json:"masked,omitempty"`
	Tokens int  `json:"tokens"` // number of trained tokens
	// Earned is the weighted sum of its signals.
	Earned float64 `json:"earned"`
	// Expected is the estimated reward of the attempt before the call; null where
	// nothing could be learned.
	Expected *float64 `json:"expected"`
	// Advantages are by setting.
	Advantages []float64 `json:"advantages"`
}

// Calls lists the calls of an attempt that the step was trained on.
func (s *Step) Calls(a record.Address, settings []Setting) (Calls, error) {
	g, i, err := s.indices(a)
	if err != nil {
		return Calls{}, err
	}
	one := s.groups[g][i]
	out := Calls{Attempt: a.String(), List: make([]Call, len(one.History))}
	for _, setting := range settings {
		o, err := s.assign(setting)
		if err != nil {
			return out, err
		}
		out.Settings = append(out.Settings, Comparison{Name: setting.Name, Assignment: setting.Spec.Credit.Assignment}.label())
		for k, c := range o.trajectories[g][i].Calls {
			entry := &out.List[k]
			entry.Number, entry.Advantages = k, append(entry.Advantages, o.given.Call[g][i][k])
			entry.Trained, entry.Masked, entry.Tokens, entry.Earned = c.Trains(), c.Masked, c.Tokens, c.Reward
		}
	}
	if one.Reward != nil {
		out.Reward = *one.Reward
	}
	for k := range out.List {
		entry := &out.List[k]
		entry.Call = one.Calls[k]
		if one.Before != nil && !math.IsNaN(one.Before[k]) {
			entry.Expected = &one.Before[k]
		}
	}
	return out, nil
}

// WriteText writes the calls as readable text.
func (c Calls) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s: reward %g\n", c.Attempt, c.Reward)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "call\tagent\tstate\ttokens\texpected\tearned\t%s\tsignals\n", strings.Join(c.Settings, "\t"))
	for _, one := range c.List {
		var fired []string
		for _, s := range one.Signals {
			fired = append(fired, s.Text())
		}
		if !one.Trained {
			fired = append(fired, "not trained")
		}
		fmt.Fprintf(t, "%d\t%s\t%.8s\t%d\t%s\t%.4g\t", one.Number, one.Agent, one.State, one.Tokens, optional(one.Expected), one.Earned)
		for _, a := range one.Advantages {
			fmt.Fprintf(t, "%.4f\t", a)
		}
		fmt.Fprintf(t, "%s\n", strings.Join(fired, ", "))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the calls: %w", err)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write the calls: %w", err)
	}
	return nil
}
