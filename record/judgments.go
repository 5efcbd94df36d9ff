package record

import "time"

// Judgments are what a judge thinks of the calls of a step, as the blob that
// AssignCreditInput.Judgments names: this value as JSON.
//
// Scores has one list for each attempt that counts, in the order of the step's
// groups and their samples, which is that of the trajectories of the batch. Such a
// list has one score for each call of the attempt, in the order of
// trace.Trajectory.History, trained or not; it is empty, and never missing, for an
// attempt without calls. A score is a number from 0, a call that did harm or
// nothing, to 10; credit takes it as it is.
type Judgments struct {
	Scores [][]float64 `json:"scores"`
}

// Judgment is what a judge once thought of the calls of an attempt, in order. The
// first stands for good, so that whoever asks again, in this run or in another, gets
// the same scores. Key: Key.
type Judgment struct {
	Key    string    `json:"key"` // SHA-256 of all that the judge was told, hex
	Model  string    `json:"model"`
	Scores []float64 `json:"scores"`
	// Run, Policy and Step say for whom it was asked.
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
	Judgment string `json:"judgment"` // the key of what was asked for
	Try      int    `json:"try"`      // from 1
	// Answer is how it begins, Reason why it is nonsense.
	Answer string    `json:"answer"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}
