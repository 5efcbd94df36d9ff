package checker

import (
	"slices"
	"time"
)

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
	Scores   []float64 // nil if it said nothing of use
}

// checkJudgments compares what is on record with what the judge has said. An answer
// may get lost on its way into the record, and then the judge is asked again; what is
// on record is never asked for.
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
