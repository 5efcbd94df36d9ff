package report

import (
	"context"
	"fmt"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

// Prompts counts the prompts of finished steps. A prompt is a task at a position of a
// stream. Each has to be trained exactly once with all its samples, or quarantined, or
// replaced because it was flat, or left out because it could not be given credit:
// Issued + Refills = Trained + Quarantined + Flat + LeftOut + Skipped + Duplicated.
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
	kind trace.Kind
	step int
	task int // ordinal in its stream
}

// String returns the position of the prompt, for example "train-3/17".
func (p prompt) String() string { return fmt.Sprintf("%s-%d/%d", p.kind, p.step, p.task) }

// accountForPrompts compares the batches with the streams.
func (r *Report) accountForPrompts(ctx context.Context, m records, blobs Blobs) error {
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
	r.LeftOut, r.Warning = l.leftOut, record.UntaughtBy(m.steps).Text()
	r.Faults = append(r.Faults, l.faults...)
	return nil
}
