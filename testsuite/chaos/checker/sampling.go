package checker

import (
	"fmt"
	"slices"
	"time"
)

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
