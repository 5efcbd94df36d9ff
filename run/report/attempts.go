package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/fulgurite/fulgurite/record"
)

// Attempts counts attempts by their result, and counts their calls.
type Attempts struct {
	Total       int            `json:"total"`
	Completed   int            `json:"completed"`
	AgentFailed int            `json:"agent_failed"`
	Failures    map[string]int `json:"failures,omitempty"` // of the agent, by kind
	InfraFault  int            `json:"infra_fault"`
	Faults      map[string]int `json:"faults,omitempty"` // those of the infrastructure that have a kind, such as "retry"
	// Lost, Running, Begun and Unfinished are the attempts without an outcome: a later attempt
	// took the place of the lost ones, nothing runs those that are only begun at the moment,
	// and the run ended before the unfinished ones did.
	Lost       int `json:"lost"`
	Running    int `json:"running"`
	Begun      int `json:"begun"`
	Unfinished int `json:"unfinished"`
	// Repeated counts attempts that had a result, but were replaced by a later attempt
	// because the result was lost on its way.
	Repeated int   `json:"repeated"`
	Calls    Calls `json:"calls"`
}

// Calls counts model calls and sampled tokens.
type Calls struct {
	Recorded    int `json:"recorded"`
	Sampled     int `json:"sampled"`  // recorded but not replayed
	Replayed    int `json:"replayed"` // answered from the record of an earlier attempt
	Tokens      int `json:"tokens"`   // sampled tokens of all recorded calls
	TokensSaved int `json:"tokens_saved"`
	// CutOff counts the recorded calls whose reply ended at a limit of tokens, and
	// AttemptsWithCutOff the attempts with such a call.
	CutOff             int `json:"cut_off"`
	AttemptsWithCutOff int `json:"attempts_with_cut_off"`
}

// Interruptions counts attempts that got no result through no fault of the agent: lost
// ones, and those with a fault of the infrastructure. The time lost with an attempt is
// the time between its last record and the beginning of the next attempt at its rollout.
type Interruptions struct {
	Count         int     `json:"count"` // how many of them a later attempt replaced
	Seconds       float64 `json:"seconds"`
	MedianSeconds float64 `json:"median_seconds"`
	MaxSeconds    float64 `json:"max_seconds"`
}

// unknownFailure counts failures of which the record has only a text.
const unknownFailure = "unknown"

// countAttempts fills in everything that follows from single attempts. Trials are
// ordered, so the next attempt at a rollout is the next trial.
func (r *Report) countAttempts(m records) {
	replays := make(map[record.Address]record.Replayed, len(m.replays))
	for _, p := range m.replays {
		replays[p.Address] = p
	}
	r.interrupted = map[int]Interruptions{}
	var lost []float64
	for i, t := range m.trials {
		var next *record.Trial
		if i+1 < len(m.trials) && m.trials[i+1].RolloutID == t.RolloutID {
			next = &m.trials[i+1]
		}
		kind := r.ByKind[t.Kind]
		for _, a := range []*Attempts{&kind, &r.Attempts} {
			a.add(t, record.StateOf(t.Outcome, next != nil, m.run), next != nil)
			a.Calls.add(t, replays[t.Address])
		}
		r.ByKind[t.Kind] = kind
		if next != nil && (t.Outcome == record.OutcomeRunning || t.Outcome == record.InfraFault) {
			seconds := lostSeconds(t, *next)
			lost = append(lost, seconds)
			if t.Kind == record.Train || t.Kind == record.Reserve {
				one := r.interrupted[t.Step]
				one.Count, one.Seconds = one.Count+1, one.Seconds+seconds
				r.interrupted[t.Step] = one
			}
		}
	}
	r.Interruptions = interruptions(lost)
}

func (a *Attempts) add(t record.Trial, state record.AttemptState, replaced bool) {
	a.Total++
	switch state {
	case record.AttemptCompleted:
		a.Completed++
	case record.AttemptAgentFailed:
		a.AgentFailed++
		if a.Failures == nil {
			a.Failures = map[string]int{}
		}
		if t.Failure == "" {
			t.Failure = unknownFailure
		}
		a.Failures[t.Failure]++
	case record.AttemptInfraFault:
		a.InfraFault++
		if t.Failure == "" {
			break
		}
		if a.Faults == nil {
			a.Faults = map[string]int{}
		}
		a.Faults[t.Failure]++
	case record.AttemptLost:
		a.Lost++
	case record.AttemptRunning:
		a.Running++
	case record.AttemptBegun:
		a.Begun++
	case record.AttemptUnfinished:
		a.Unfinished++
	}
	if replaced && (t.Outcome == record.OutcomeCompleted || t.Outcome == record.AgentFailed) {
		a.Repeated++
	}
}

func (c *Calls) add(t record.Trial, p record.Replayed) {
	c.Recorded += t.Calls
	c.Tokens += t.Tokens
	c.Sampled += t.Calls - p.Calls
	c.Replayed += p.Calls
	c.TokensSaved += p.Tokens
	if c.CutOff += t.CutOff; t.CutOff > 0 {
		c.AttemptsWithCutOff++
	}
}

// lostSeconds returns the time lost with attempt t. It returns 0 if the clocks of two
// machines differ by more than this time.
func lostSeconds(t, next record.Trial) float64 {
	last := t.Begun
	if t.Progress.After(last) {
		last = t.Progress
	}
	return max(0, next.Begun.Sub(last).Round(time.Millisecond).Seconds())
}

func interruptions(lost []float64) Interruptions {
	out := Interruptions{Count: len(lost)}
	if len(lost) == 0 {
		return out
	}
	slices.Sort(lost)
	for _, seconds := range lost {
		out.Seconds += seconds
	}
	out.MaxSeconds = lost[len(lost)-1]
	out.MedianSeconds = (lost[len(lost)/2] + lost[(len(lost)-1)/2]) / 2
	return out
}

// Refusal counts the refused calls of a run with one code.
type Refusal struct {
	record.RefusalCount
	// Attempt is the address of the latest attempt that was refused with this code.
	Attempt string `json:"attempt"`
}

// Refusals converts a store's counts for a report.
func Refusals(counts []record.RefusalCount) []Refusal {
	all := make([]Refusal, len(counts))
	for i, c := range counts {
		all[i] = Refusal{c, c.Address.String()}
	}
	return all
}

// Text returns the refusal as one line.
func (r Refusal) Text() string {
	noun := "call"
	if r.OfReward() {
		noun = "reward"
	}
	return fmt.Sprintf("%s: %s of %s, last %s: %s", r.Code, counted(r.Count, noun), counted(r.Attempts, "attempt"), r.Attempt, r.Message)
}

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (p *page) writeRefusals(refusals []Refusal) {
	if len(refusals) == 0 {
		return
	}
	p.Line("  refused model calls and rewards, which are not among those recorded:")
	p.lines(len(refusals), func(i int) { p.Line("    %s", refusals[i].Text()) })
}
