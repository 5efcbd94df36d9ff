package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
)

// use is one occurrence of an attempt in a batch.
type use struct {
	address trace.Address
	batch   int // step
}

// books are what finished steps were to train on, and what they did.
type books struct {
	material
	made        map[int]model.Version // by number
	trials      map[trace.Address]record.Trial
	attempts    map[prompt]int
	rewards     map[prompt]map[int]float64 // by sample: of the last attempt that came to one
	quarantined map[prompt]bool
	outcomes    map[prompt]map[int]trace.Outcome // by sample: of the last attempt
	used        map[prompt][]use
	faults      []string
}

func (b *books) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// closeOn accounts for what is left on the books and belongs to no finished step.
func (b *books) closeOn(r *Report) {
	for _, p := range inOrder(b.used) {
		b.fault("%s was trained in the batch of step %d, but no stream has it", p, b.used[p][0].batch)
		r.Prompts.Unexpected++
		delete(b.attempts, p)
	}
	finished := make(map[int]bool, len(b.steps))
	for _, s := range b.steps {
		finished[s.Step] = true
	}
	for _, p := range inOrder(b.attempts) {
		switch {
		case finished[p.step] && b.withdrawn(p):
			r.Prompts.Withdrawn++
		case finished[p.step]:
			b.fault("%s was tried, but no stream has it", p)
			r.Prompts.Unexpected++
		case b.run.Status == record.Running:
			r.Prompts.UnderWay++
		default:
			r.Prompts.Abandoned++
		}
	}
}

// withdrawn reports whether no attempt at a prompt counts any more: a person had the
// run make them again, and it came to need the prompt no longer.
func (b *books) withdrawn(p prompt) bool {
	for _, outcome := range b.outcomes[p] {
		if outcome != trace.InfraFault {
			return false
		}
	}
	return true
}

func inOrder[V any](m map[prompt]V) []prompt {
	return slices.SortedFunc(maps.Keys(m), func(p, q prompt) int {
		return cmp.Or(cmp.Compare(p.step, q.step), cmp.Compare(q.kind, p.kind), cmp.Compare(p.task, q.task))
	})
}

func newBooks(m material) *books {
	b := &books{
		material: m, trials: make(map[trace.Address]record.Trial, len(m.trials)), attempts: map[prompt]int{},
		rewards: map[prompt]map[int]float64{}, quarantined: map[prompt]bool{}, outcomes: map[prompt]map[int]trace.Outcome{}, used: map[prompt][]use{}, made: make(map[int]model.Version, len(m.versions)),
	}
	for _, v := range m.versions {
		b.made[v.Number] = v
	}
	for _, t := range m.trials {
		if t.Kind == trace.Train || t.Kind == trace.Reserve {
			b.enter(t)
		}
	}
	for _, q := range m.quarantines {
		b.quarantined[prompt{q.Kind, q.Step, q.Task}] = true
	}
	return b
}

// enter notes an attempt. Those at one rollout come in order.
func (b *books) enter(t record.Trial) {
	b.trials[t.Address] = t
	p := prompt{t.Kind, t.Step, t.Task}
	b.attempts[p]++
	if b.outcomes[p] == nil {
		b.outcomes[p] = map[int]trace.Outcome{}
	}
	b.outcomes[p][t.Sample] = t.Outcome
	if t.Reward == nil || t.Outcome != trace.Completed && t.Outcome != trace.AgentFailed {
		return
	}
	if b.rewards[p] == nil {
		b.rewards[p] = map[int]float64{}
	}
	b.rewards[p][t.Sample] = *t.Reward
}

// flat reports whether the step could replace a prompt that was used so often: all its
// samples came to the same reward. Where more than that makes the credit, the run
// decided by what it knew of the calls then, which is not computed anew: a prompt
// whose samples all came to some reward and were not trained was flat.
func (b *books) flat(p prompt, uses int) bool {
	n := b.spec.Training.SamplesPerTask
	byCredit := b.spec.Credit.FlatByCredit()
	first, ok := b.rewards[p][0]
	for i := range n {
		r, has := b.rewards[p][i]
		ok = ok && has && (byCredit || r == first)
	}
	return ok && n > 1 && (!byCredit || uses == 0)
}

// read notes what the batch of a step trains on, and whether it is the one that
// its version was trained on. A batch that can't be read is a fault of the run,
// and its prompts count as skipped.
func (b *books) read(ctx context.Context, blobs Blobs, s record.Step) error {
	digest := s.Batch
	if made := b.batches[s.Step].Digest; made != digest {
		b.fault("step %d was finished with batch %s, but %s is the batch of that step", s.Step, digest, orNone(made))
	}
	if v, ok := b.made[s.Step]; !ok {
		b.fault("version %d is not on record, although step %d is finished", s.Step, s.Step)
	} else if v.Batch != digest {
		b.fault("version %d was trained on batch %s, but step %d was finished with %s", v.Number, orNone(v.Batch), s.Step, digest)
	}
	data, err := blobs.Get(ctx, digest)
	var batch model.Batch
	if err == nil {
		batch, err = hf.DecodeBatch(data)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		b.fault("the batch of step %d can't be read: %v", s.Step, err)
		return nil
	}
	for i, t := range batch.Trajectories {
		a, err := trace.ParseAddress(t.Attempt)
		if err != nil || a.Run != b.run.Name {
			b.fault("trajectory %d in the batch of step %d is %q, no attempt of this run", i, s.Step, t.Attempt)
			continue
		}
		b.check(a, t, s.Step)
		p := prompt{a.Kind, a.Step, a.Task}
		b.used[p] = append(b.used[p], use{a, s.Step})
	}
	return nil
}

// check finds fault with an attempt that a batch learns from and that does not
// count.
func (b *books) check(a trace.Address, t model.BatchTrajectory, step int) {
	trial, ok := b.trials[a]
	switch {
	case !ok:
		b.fault("%s in the batch of step %d is no training attempt on record", a, step)
	case trial.Outcome != trace.Completed && trial.Outcome != trace.AgentFailed:
		b.fault("%s in the batch of step %d does not count: its outcome is %q", a, step, trial.Outcome)
	case trial.Reward == nil:
		b.fault("%s in the batch of step %d has no reward on record", a, step)
	case *trial.Reward != t.Reward:
		b.fault("%s was trained in step %d with reward %v, on record is %v", a, step, t.Reward, *trial.Reward)
	}
}

// step accounts for what the streams had for a step, and takes it off the books.
func (b *books) step(step int) Step {
	out := Step{Step: step}
	n, perStep := len(b.tasks), b.spec.Training.TasksPerStep
	if n == 0 {
		return out
	}
	for i := range perStep {
		p := prompt{trace.Train, step, (step-1)*perStep + i}
		index, _ := tasks.At(b.spec.Seed, n, p.task)
		out.Issued++
		b.settle(&out, p, b.tasks[index])
	}
	// Every prompt that is quarantined or flat is replaced, a replacement too. Those
	// of the stream and then the reserves in their turn are in the order in which the
	// step decided about them.
	for k := 0; k < out.Quarantined+out.Flat; k++ {
		out.Refills++
		b.settle(&out, prompt{trace.Reserve, step, k}, b.tasks[tasks.Reserve(b.spec.Seed, n, step, k)])
	}
	return out
}

// settle finds out what became of a prompt.
func (b *books) settle(out *Step, p prompt, task tasks.Task) {
	uses := b.used[p]
	delete(b.used, p)
	out.Attempts += b.attempts[p]
	delete(b.attempts, p)
	times := make([]int, b.spec.Training.SamplesPerTask)
	most, missing := 0, 0
	for _, u := range uses {
		if trial, ok := b.trials[u.address]; ok && trial.TaskID != task.ID {
			b.fault("%s tried task %q, but the stream has task %q there", u.address, trial.TaskID, task.ID)
		}
		if u.batch != p.step {
			b.fault("%s was trained in the batch of step %d", u.address, u.batch)
		}
		if u.address.Sample >= len(times) {
			b.fault("%s was trained, but a task has %d samples", u.address, len(times))
			continue
		}
		times[u.address.Sample]++
		most = max(most, times[u.address.Sample])
	}
	for _, n := range times {
		if n == 0 {
			missing++
		}
	}
	left := b.spec.Training.DynamicSampling - out.Flat // replacements
	due := left > 0 && !b.quarantined[p] && b.flat(p, len(uses))
	if due && len(uses) > 0 {
		b.fault("%s was trained, although its rewards are all equal and the step could still replace %d", p, left)
	}
	switch {
	case due && len(uses) == 0:
		out.Flat++
		out.FlatSamples += len(times)
	case b.quarantined[p] && len(uses) == 0:
		out.Quarantined++
	case b.quarantined[p]:
		b.fault("%s is quarantined, but was trained", p)
		out.Quarantined++
		out.Unexpected++
	case most > 1:
		b.fault("%s was trained more than once: samples occur up to %d times", p, most)
		out.Duplicated++
	case missing == len(times):
		b.fault("%s was neither trained nor quarantined", p)
		out.Skipped++
	case missing > 0:
		b.fault("%s was trained in part: %d of %d samples are missing", p, missing, len(times))
		out.Skipped++
	default:
		out.Trained++
		out.Samples += len(times)
	}
}
