package record

import "time"

// Judgments has a judge's scores of the calls of a step. It is, as JSON, the content of
// the blob that AssignCreditInput.Judgments names.
//
// Scores has one list for each attempt that counts, in the order of the step's groups and
// their samples, which is also the order of the batch's trajectories. Each list has one
// score for each call of the attempt, in the order of trace.Trajectory.History, trained
// or not; it is empty, and never missing, for an attempt without calls. A score is a
// number from 0 (the call did harm or nothing) to 10; credit uses it unchanged.
type Judgments struct {
	Scores [][]float64 `json:"scores"`
}

// Judgment has a judge's scores of the calls of an attempt, in order. The first judgment
// is final, so that a later request, in this run or another, gets the same scores. Key:
// Key.
type Judgment struct {
	Key    string    `json:"key"` // SHA-256 of all that the judge was told, hex
	Model  string    `json:"model"`
	Scores []float64 `json:"scores"`
	// Run, Policy and Step say which step asked for it.
	Run    string    `json:"run"`
	Policy string    `json:"policy"`
	Step   int       `json:"step"`
	At     time.Time `json:"at"`
}

// Nonsense is an answer of a judge that could not be read. Key: Run, Policy, Step,
// Judgment, Try.
type Nonsense struct {
	Run      string `json:"run"`
	Policy   string `json:"policy"`
	Step     int    `json:"step"`
	Judgment string `json:"judgment"` // the key of the judgment asked for
	Try      int    `json:"try"`      // from 1
	// Answer is the beginning of the answer. Reason says why it could not be read.
	Answer string    `json:"answer"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}
