package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/files/hf"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
)

// use is one occurrence of an attempt in a batch.
type use struct {
	address record.Address
	batch   int // the step of the batch
	leftOut bool
}

// ledger compares what finished steps had to train with what they did train.
type ledger struct {
	records
	made        map[int]model.Version // by number
	trials      map[record.Address]record.Trial
	attempts    map[prompt]int
	rewards     map[prompt]map[int]float64 // by sample: the reward of the last attempt that got one
	tokens      map[prompt]int             // sampled by the attempts that got a reward
	taskIDs     map[prompt]string
	quarantined map[prompt]bool
	outcomes    map[prompt]map[int]record.Outcome // by sample: the outcome of the last attempt
	used        map[prompt][]use
	trained     map[string]int // tokens in batches, by policy
	faults      []string
	leftOut     []string // why groups were left out of batches
}

func (l *ledger) fault(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

// accountForRest accounts for the prompts that belong to no finished step.
func (l *ledger) accountForRest(r *Report) {
	for _, p := range inOrder(l.used) {
		l.fault("%s was trained in the batch of step %d, but no stream has it", p, l.used[p][0].batch)
		r.Prompts.Unexpected++
		delete(l.attempts, p)
	}
	finished := make(map[int]bool, len(l.steps))
	for _, s := range l.steps {
		finished[s.Step] = true
	}
	for _, p := range inOrder(l.attempts) {
		switch {
		case finished[p.step] && l.withdrawn(p):
			r.Prompts.Withdrawn++
		case finished[p.step]:
			l.fault("%s was tried, but no stream has it", p)
			r.Prompts.Unexpected++
		case l.run.Status == record.Running:
			r.Prompts.UnderWay++
		default:
			r.Prompts.Abandoned++
		}
	}
}

// withdrawn reports whether no attempt at a prompt counts any more: a person made the run
// repeat them, and the run then no longer needed the prompt.
func (l *ledger) withdrawn(p prompt) bool {
	for _, outcome := range l.outcomes[p] {
		if outcome != record.InfraFault {
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

func newLedger(m records) *ledger {
	l := &ledger{
		records: m, trials: make(map[record.Address]record.Trial, len(m.trials)), attempts: map[prompt]int{},
		rewards: map[prompt]map[int]float64{}, tokens: map[prompt]int{}, taskIDs: map[prompt]string{}, quarantined: map[prompt]bool{}, outcomes: map[prompt]map[int]record.Outcome{}, used: map[prompt][]use{}, trained: map[string]int{}, made: make(map[int]model.Version, len(m.versions)),
	}
	for _, v := range m.versions {
		l.made[v.Number] = v
	}
	for _, t := range m.trials {
		if evaluates := m.spec.Evaluation.Only != ""; !evaluates && (t.Kind == record.Train || t.Kind == record.Reserve) {
			l.add(t)
		}
	}
	for _, q := range m.quarantines {
		l.quarantined[prompt{q.Kind, q.Step, q.Task}] = true
	}
	return l
}

// add adds an attempt. Those at one rollout come in order.
func (l *ledger) add(t record.Trial) {
	l.trials[t.Address] = t
	p := prompt{t.Kind, t.Step, t.Task}
	l.attempts[p]++
	l.taskIDs[p] = t.TaskID
	if l.outcomes[p] == nil {
		l.outcomes[p] = map[int]record.Outcome{}
	}
	l.outcomes[p][t.Sample] = t.Outcome
	if t.Reward == nil || t.Outcome != record.OutcomeCompleted && t.Outcome != record.AgentFailed {
		return
	}
	if l.rewards[p] == nil {
		l.rewards[p] = map[int]float64{}
	}
	l.rewards[p][t.Sample] = *t.Reward
	l.tokens[p] += t.Tokens
}

// flat reports whether the step could replace a prompt that was used this often, because
// all its samples got the same reward or none sampled a token. If credit depends on more than rewards, the run
// decided by the calls. This decision is not recomputed here: such a prompt is flat if
// all its samples got some reward and none was trained.
func (l *ledger) flat(p prompt, uses int) bool {
	n := l.spec.Training.SamplesPerTask
	byCredit := l.spec.FlatByCredit()
	byCredit = byCredit || l.tokens[p] == 0
	first, ok := l.rewards[p][0]
	for i := range n {
		r, has := l.rewards[p][i]
		ok = ok && has && (byCredit || credit.Equal(r, first))
	}
	return ok && n > 1 && (!byCredit || uses == 0)
}

// batchOf reads the batch of a step, and checks that it is the batch on which the step's
// version was trained. ok is false if it was removed, or can't be read, which is a fault of
// the run.
func (l *ledger) batchOf(ctx context.Context, blobs Blobs, s record.Step) (batch model.Batch, ok bool, err error) {
	digest := s.Batch
	if made := l.batches[s.Step].Digest; made != digest {
		l.fault("step %d was finished with batch %s, but %s is the batch of that step", s.Step, digest, orNone(made))
	}
	if v, ok := l.made[s.Step]; !ok {
		l.fault("version %d is not on record, although step %d is finished", s.Step, s.Step)
	} else if v.Batch != digest {
		l.fault("version %d was trained on batch %s, but step %d was finished with %s", v.Number, orNone(v.Batch), s.Step, digest)
	}
	if l.forgotten[s.Step] {
		return batch, false, nil
	}
	data, err := blobs.Get(ctx, digest)
	if err == nil {
		batch, err = hf.DecodeBatch(data)
	}
	if ctx.Err() != nil {
		return batch, false, ctx.Err()
	}
	if err != nil {
		l.fault("the batch of step %d can't be read: %v", s.Step, err)
		return batch, false, nil
	}
	return batch, true, nil
}

// read adds what the batch of a step trains on. A batch that can't be read is a fault of the
// run, and its prompts count as skipped.
func (l *ledger) read(ctx context.Context, blobs Blobs, s record.Step) error {
	batch, ok, err := l.batchOf(ctx, blobs, s)
	if err != nil || !ok {
		return err
	}
	for _, r := range batch.Rows {
		l.trained[r.Policy] += r.Trained()
	}
	for i, t := range batch.Trajectories {
		a, err := record.ParseAddress(t.Attempt)
		if err != nil || a.Run != l.run.Name {
			l.fault("trajectory %d in the batch of step %d is %q, no attempt of this run", i, s.Step, t.Attempt)
			continue
		}
		l.check(a, t, s.Step)
		p := prompt{a.Kind, a.Step, a.Task}
		l.used[p] = append(l.used[p], use{a, s.Step, t.LeftOut != ""})
		if t.LeftOut != "" && !slices.Contains(l.leftOut, t.LeftOut) {
			l.leftOut = append(l.leftOut, t.LeftOut)
		}
	}
	return nil
}

// check reports an attempt that a batch learns from and that does not count.
func (l *ledger) check(a record.Address, t model.BatchTrajectory, step int) {
	trial, ok := l.trials[a]
	switch {
	case !ok:
		l.fault("%s in the batch of step %d is not a training attempt on record", a, step)
	case trial.Outcome != record.OutcomeCompleted && trial.Outcome != record.AgentFailed:
		l.fault("%s in the batch of step %d does not count: its outcome is %q", a, step, trial.Outcome)
	case trial.Reward == nil:
		l.fault("%s in the batch of step %d has no reward on record", a, step)
	case *trial.Reward != t.Reward:
		l.fault("%s was trained in step %d with reward %v, but %v is on record", a, step, t.Reward, *trial.Reward)
	}
}

// step accounts for the prompts that the streams had for a step, and removes them from
// the ledger.
func (l *ledger) step(step int) Step {
	out := Step{Step: step}
	perStep := l.spec.Training.TasksPerStep
	if len(l.tasks) == 0 {
		return out
	}
	if l.forgotten[step] {
		out.Issued, out.Forgotten = perStep, perStep
		for _, p := range inOrder(l.attempts) {
			if p.step == step {
				out.Attempts += l.attempts[p]
				delete(l.attempts, p)
			}
		}
		return out
	}
	for i := range perStep {
		p := prompt{record.Train, step, (step-1)*perStep + i}
		out.Issued++
		l.account(&out, p, l.taskOf(p))
	}
	// Every quarantined or flat prompt is replaced, even if it is itself a replacement.
	// The step decided first about the prompts of the stream, then about the reserves by
	// number.
	for k := 0; k < out.Quarantined+out.Flat; k++ {
		out.Refills++
		p := prompt{record.Reserve, step, k}
		l.account(&out, p, l.taskOf(p))
	}
	return out
}

// account finds out how a prompt was used.
func (l *ledger) account(out *Step, p prompt, task tasks.Task) {
	uses := l.used[p]
	delete(l.used, p)
	out.Attempts += l.attempts[p]
	delete(l.attempts, p)
	times := make([]int, l.spec.Training.SamplesPerTask)
	most, missing := 0, 0
	for _, u := range uses {
		if trial, ok := l.trials[u.address]; ok && trial.TaskID != task.ID {
			l.fault("%s tried task %q, but the stream has task %q there", u.address, trial.TaskID, task.ID)
		}
		if u.batch != p.step {
			l.fault("%s was trained in the batch of step %d", u.address, u.batch)
		}
		if u.address.Sample >= len(times) {
			l.fault("%s was trained, but a task has %d samples", u.address, len(times))
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
	left := l.spec.Training.DynamicSampling - out.Flat // replacements that are left
	due := left > 0 && !l.quarantined[p] && l.flat(p, len(uses))
	if due && len(uses) > 0 {
		l.fault("%s was trained, although its rewards are all equal and the step could still replace %d", p, left)
	}
	switch {
	case due && len(uses) == 0:
		out.Flat++
		out.FlatSamples += len(times)
	case l.quarantined[p] && len(uses) == 0:
		out.Quarantined++
	case l.quarantined[p]:
		l.fault("%s is quarantined, but was trained", p)
		out.Quarantined++
		out.Unexpected++
	case most > 1:
		l.fault("%s was trained more than once: samples occur up to %d times", p, most)
		out.Duplicated++
	case missing == len(times):
		l.fault("%s was neither trained nor quarantined", p)
		out.Skipped++
	case missing > 0:
		l.fault("%s was trained in part: %d of %d samples are missing", p, missing, len(times))
		out.Skipped++
	case slices.ContainsFunc(uses, func(u use) bool { return u.leftOut }):
		out.LeftOut++
	default:
		out.Trained++
		out.Samples += len(times)
	}
}

// Prompts counts the prompts of finished steps. A prompt is a task at a position of a
// stream. Each has to be trained exactly once with all its samples, or quarantined, or
// replaced because it was flat, or left out because it could not be given credit:
// Issued + Refills = Trained + Quarantined + Flat + LeftOut + Skipped + Duplicated + Forgotten.
type Prompts struct {
	Issued      int `json:"issued"`  // by the stream of tasks
	Refills     int `json:"refills"` // from the reserve, one for each quarantined or flat
	Quarantined int `json:"quarantined"`
	// Flat counts prompts that were tried but not trained: they would have had no
	// advantage, so a step with training.dynamic_sampling replaced them by others.
	Flat int `json:"flat"`
	// FlatSamples counts the rollouts of flat prompts; they counted, and nothing was
	// learned from them.
	FlatSamples int `json:"flat_samples"`
	// LeftOut counts prompts that are in a batch without being trained, because an attempt
	// at them could not be given credit. The batch says why.
	LeftOut    int `json:"left_out"`
	Trained    int `json:"trained"`    // exactly once
	Skipped    int `json:"skipped"`    // not trained, or not with all samples
	Duplicated int `json:"duplicated"` // trained more than once
	// Forgotten counts the prompts of steps whose batches were removed with a task, so that
	// nothing tells what became of them.
	Forgotten int `json:"forgotten"`
	// Unexpected counts prompts that were trained although no stream issued them.
	Unexpected int `json:"unexpected"`
	// UnderWay counts prompts that have begun in steps that are not finished.
	UnderWay int `json:"under_way"`
	// Withdrawn counts prompts that were tried in finished steps without a result that
	// counts: they replaced others until the run was retried.
	Withdrawn int `json:"withdrawn"`
	// Abandoned counts prompts that had begun in steps that were not finished when the
	// run ended.
	Abandoned int `json:"abandoned"`
}

func (p *Prompts) add(q Prompts) {
	p.Issued += q.Issued
	p.Refills += q.Refills
	p.Quarantined += q.Quarantined
	p.Flat += q.Flat
	p.FlatSamples += q.FlatSamples
	p.LeftOut += q.LeftOut
	p.Trained += q.Trained
	p.Skipped += q.Skipped
	p.Duplicated += q.Duplicated
	p.Forgotten += q.Forgotten
	p.Unexpected += q.Unexpected
}

// Step is the account of one step.
type Step struct {
	Step int `json:"step"`
	Prompts
	Samples  int `json:"samples"`
	Attempts int `json:"attempts"`
	// Interrupted counts the step's attempts that a later one replaced because of a
	// fault, and InterruptedSeconds is the time lost with them.
	Interrupted        int     `json:"interrupted"`
	InterruptedSeconds float64 `json:"interrupted_seconds"`
}

// prompt is a task at a place of a stream.
type prompt struct {
	kind record.Kind
	step int
	task int // ordinal in its stream
}

// String returns the position of the prompt, for example "train-3/17".
func (p prompt) String() string { return fmt.Sprintf("%s-%d/%d", p.kind, p.step, p.task) }

// accountForPrompts compares the batches with the streams.
func (r *Report) accountForPrompts(ctx context.Context, m records, blobs Blobs) error {
	if m.spec.FromTraffic() {
		return r.accountForUse(ctx, m, blobs)
	}
	l := newLedger(m)
	for i, s := range m.steps {
		if s.Step != i+1 {
			l.fault("step %d is not on record, although step %d is finished", i+1, s.Step)
			break
		}
	}
	for _, s := range m.steps {
		if err := l.read(ctx, blobs, s); err != nil {
			return err
		}
	}
	l.checkChoices()
	for _, s := range m.steps {
		account := l.step(s.Step)
		account.Interrupted, account.InterruptedSeconds = r.interrupted[account.Step].Count, r.interrupted[account.Step].Seconds
		r.ByStep = append(r.ByStep, account)
		r.Prompts.add(account.Prompts)
		r.Samples += account.Samples
	}
	l.accountForRest(r)
	r.Policies = policiesOf(m, l.trained)
	r.LeftOut, r.Warning = l.leftOut, record.UntaughtBy(m.steps).Text()
	r.Faults = append(r.Faults, l.faults...)
	return nil
}
