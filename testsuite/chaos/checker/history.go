package checker

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/history/v1"
)

// Issued is a group that a run asked for: one child workflow.
type Issued struct {
	Kind       string
	Step, Task int
	Index      int // in the train split
	Version    int // that it samples from
	Samples    int
	// Attempts are the numbers of the attempts that count, one for each sample, and
	// Rewards are their rewards. Both are nil until the child has ended.
	Attempts   []int
	Rewards    []float64
	Quarantine string
}

// History is the part of Temporal's history of a run that the checker reads.
type History struct {
	Completed bool
	Issued    []Issued
	// Batches holds the digests of the batches that were made, by step. Updates holds the
	// digests of the batches on which the policy was trained, by version, and
	// CriticUpdates those of the critic.
	Batches, Updates, CriticUpdates map[int]string
	// Repeated names steps that were assigned credit or trained more than once.
	Repeated []string
	// Weights is the digest of the last version's weights, as the workflow returned
	// it.
	Weights string
	// Search is how a search for prompts ended, as its workflow returned it.
	Search SearchResult

	children  map[int64]int    // initiated event → index in Issued
	scheduled map[int64]string // scheduled event → activity
	steps     map[int64]int    // scheduled event → step
}

// ReadHistory reads the history of a training, execution after execution where it
// continued as new.
func ReadHistory(executions ...[]*history.HistoryEvent) (History, error) {
	s := History{Batches: map[int]string{}, Updates: map[int]string{}, CriticUpdates: map[int]string{}}
	for _, events := range executions {
		s.children, s.scheduled, s.steps = map[int64]int{}, map[int64]string{}, map[int64]int{}
		for _, e := range events {
			if err := s.read(e); err != nil {
				return s, fmt.Errorf("read event %d: %w", e.EventId, err)
			}
		}
	}
	return s, nil
}

func (s *History) read(e *history.HistoryEvent) error {
	switch {
	case e.GetStartChildWorkflowExecutionInitiatedEventAttributes() != nil:
		return s.childInitiated(e.EventId, e.GetStartChildWorkflowExecutionInitiatedEventAttributes())
	case e.GetChildWorkflowExecutionCompletedEventAttributes() != nil:
		return s.childCompleted(e.GetChildWorkflowExecutionCompletedEventAttributes())
	case e.GetActivityTaskScheduledEventAttributes() != nil:
		return s.activityScheduled(e.EventId, e.GetActivityTaskScheduledEventAttributes())
	case e.GetActivityTaskCompletedEventAttributes() != nil:
		return s.activityCompleted(e.GetActivityTaskCompletedEventAttributes())
	case e.GetWorkflowExecutionCompletedEventAttributes() != nil:
		s.Completed = true
		var out struct {
			Weights string `json:"weights"`
			SearchResult
		}
		err := decode(e.GetWorkflowExecutionCompletedEventAttributes().Result, &out)
		s.Weights, s.Search = out.Weights, out.SearchResult
		return err
	}
	return nil
}

func (s *History) childInitiated(id int64, a *history.StartChildWorkflowExecutionInitiatedEventAttributes) error {
	if a.WorkflowType.GetName() != "RolloutWorkflow" {
		return nil
	}
	var in struct {
		Kind    string `json:"kind"`
		Step    int    `json:"step"`
		Task    int    `json:"task"`
		Index   int    `json:"index"`
		Version int    `json:"version"`
		Samples int    `json:"samples"`
	}
	if err := decode(a.Input, &in); err != nil {
		return err
	}
	s.children[id] = len(s.Issued)
	s.Issued = append(s.Issued, Issued{Kind: in.Kind, Step: in.Step, Task: in.Task, Index: in.Index, Version: in.Version, Samples: in.Samples})
	return nil
}

func (s *History) childCompleted(a *history.ChildWorkflowExecutionCompletedEventAttributes) error {
	i, ok := s.children[a.InitiatedEventId]
	if !ok {
		return nil
	}
	var out struct {
		Group struct {
			Attempts []int     `json:"attempts"`
			Rewards  []float64 `json:"rewards"`
		} `json:"group"`
		Quarantine string `json:"quarantine"`
	}
	err := decode(a.Result, &out)
	s.Issued[i].Attempts, s.Issued[i].Rewards, s.Issued[i].Quarantine = out.Group.Attempts, out.Group.Rewards, out.Quarantine
	return err
}

func (s *History) activityScheduled(id int64, a *history.ActivityTaskScheduledEventAttributes) error {
	name := a.ActivityType.GetName()
	if name != "AssignCredit" && name != "TrainStep" && name != "TrainCritic" {
		return nil
	}
	var in struct {
		Step  int    `json:"step"`
		Batch string `json:"batch"`
	}
	if err := decode(a.Input, &in); err != nil {
		return err
	}
	s.scheduled[id], s.steps[id] = name, in.Step
	switch name {
	case "TrainStep":
		s.addBatch(s.Updates, name, in.Step, in.Batch)
	case "TrainCritic":
		s.addBatch(s.CriticUpdates, name, in.Step, in.Batch)
	}
	return nil
}

func (s *History) activityCompleted(a *history.ActivityTaskCompletedEventAttributes) error {
	if s.scheduled[a.ScheduledEventId] != "AssignCredit" {
		return nil
	}
	var out struct {
		Batch string `json:"batch"`
	}
	err := decode(a.Result, &out)
	s.addBatch(s.Batches, "AssignCredit", s.steps[a.ScheduledEventId], out.Batch)
	return err
}

// addBatch adds the batch of a step. A second batch for the same step is noted in
// Repeated.
func (s *History) addBatch(to map[int]string, activity string, step int, batch string) {
	if _, there := to[step]; there {
		s.Repeated = append(s.Repeated, fmt.Sprintf("%s of step %d", activity, step))
	}
	to[step] = batch
}

// decode reads the only payload of a message, which is JSON.
func decode(p *common.Payloads, v any) error {
	if len(p.GetPayloads()) != 1 {
		return fmt.Errorf("%d payloads", len(p.GetPayloads()))
	}
	return json.Unmarshal(p.Payloads[0].Data, v)
}

// Hang is a time during which a client or a server was suspended.
type Hang struct{ From, Until time.Time }

// thawDelay is how long after a hang a request may still arrive that was made before or
// during the hang. It was waiting in the suspended process or in a socket's buffer.
const thawDelay = time.Second

// earliestRequest returns the earliest time at which the request for something may have
// been made that began at the given time.
func earliestRequest(began time.Time, hangs []Hang) time.Time {
	at := began
	for _, h := range hangs {
		if began.After(h.From) && began.Before(h.Until.Add(thawDelay)) && h.From.Before(at) {
			at = h.From
		}
	}
	return at
}

// checkSampling compares the generations of the sampler with the recorded calls. The seed
// identifies a call within a run, in all its attempts.
func checkSampling(f *Findings, e Evidence) {
	first := map[uint64]Call{} // on record
	for _, c := range e.Records.Calls {
		if earlier, ok := first[c.Seed]; !ok || c.Recorded.Before(earlier.Recorded) {
			first[c.Seed] = c
		}
	}
	generations := map[uint64][]Generation{}
	for _, g := range e.Generations {
		if g.Run == e.Records.Run {
			generations[g.Seed] = append(generations[g.Seed], g)
		}
	}
	for seed, all := range generations {
		call, recorded := first[seed]
		again := 0
		for _, g := range all {
			if g.Weights != all[0].Weights || g.Version != all[0].Version || !equal(g.Tokens, all[0].Tokens) {
				f.wrong("seed %d was sampled twice with different results, at %v and %v", seed, all[0].Started, g.Started)
			}
			if recorded && earliestRequest(g.Started, e.Hangs).After(call.Recorded) {
				again++
				f.Repeated = append(f.Repeated, fmt.Sprintf("call %d of %s %s-%d/%d/%d was recorded by attempt %d at %s and sampled again at %s",
					call.Seq, f.Run, call.Kind, call.Step, call.Task, call.Sample, call.Attempt, call.Recorded.UTC().Format(timeOfDay), g.Started.UTC().Format(timeOfDay)))
			}
		}
		f.RecordedCallsSampledAgain += again
		f.SampledUnrecorded += len(all) - again
		if recorded && again < len(all) {
			f.SampledUnrecorded-- // one of them is the recorded call
		}
	}
	for seed, c := range first {
		if !slices.ContainsFunc(generations[seed], func(g Generation) bool { return equal(g.Tokens, c.Tokens) && g.Version == c.Version }) {
			f.wrong("call %d of %s-%d/%d/%d/%d is on record, and nobody sampled it", c.Seq, c.Kind, c.Step, c.Task, c.Sample, c.Attempt)
		}
	}
}

// timeOfDay is to the millisecond.
const timeOfDay = "15:04:05.000"

func equal(a, b []int32) bool { return slices.Equal(a, b) }

// Judgment is a judgment's row.
type Judgment struct {
	Key    string
	Scores []float64
	At     time.Time
}

// Answer is what a judge was asked and said, by its own account. No two answers have
// the same scores.
type Answer struct {
	Question string
	Asked    time.Time
	Scores   []float64 // nil if the answer could not be used
}

// checkJudgments compares the recorded judgments with the judge's answers. An answer may
// get lost before it is recorded; the judge is then asked again. A recorded judgment must
// never be asked for again.
func checkJudgments(f *Findings, e Evidence) {
	f.Judgments = len(e.Records.Judgments)
	for _, j := range e.Records.Judgments {
		given := slices.IndexFunc(e.Answers, func(a Answer) bool { return a.Scores != nil && slices.Equal(a.Scores, j.Scores) })
		if given < 0 {
			f.wrong("judgment %s is on record, and no judge gave it", j.Key)
			continue
		}
		for i, a := range e.Answers {
			switch {
			case a.Question != e.Answers[given].Question:
			case earliestRequest(a.Asked, e.WorkerHangs).After(j.At):
				f.JudgedAgain++
				f.wrong("judgment %s was recorded at %s and asked for again at %s", j.Key, j.At.UTC().Format(timeOfDay), a.Asked.UTC().Format(timeOfDay))
			case i != given && a.Scores != nil:
				f.JudgmentsLost++
			}
		}
	}
}
