package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ExperimentStatus says whether an experiment is running, or how it ended.
type ExperimentStatus string

// The statuses. An experiment ends once, in one of the last three.
const (
	ExperimentRunning   ExperimentStatus = "running"
	ExperimentPromoted  ExperimentStatus = "promoted"
	ExperimentWithdrawn ExperimentStatus = "withdrawn"
	// ExperimentEnded is without a promotion: no difference was found, or a person ended it.
	ExperimentEnded ExperimentStatus = "ended"
)

// Experiment is a candidate that answers a share of the conversations of users beside the
// version that was promoted when it began. A policy has at most one that is running. Key:
// Run, Policy, Candidate.
type Experiment struct {
	Run       string           `json:"run"`
	Policy    string           `json:"policy"`
	Candidate int              `json:"candidate"`
	Control   int              `json:"control"` // the version that answers all other conversations
	Share     float64          `json:"share"`   // of the units that get the candidate, more than 0 and less than 1
	Status    ExperimentStatus `json:"status"`
	Reason    string           `json:"reason,omitempty"` // why it ended
	// Result is what the last look showed. nil if nobody has looked yet.
	Result json.RawMessage `json:"result,omitempty"`
	Begun  time.Time       `json:"begun"`
	Ended  time.Time       `json:"ended,omitzero"` // zero while it is running
}

// Check returns an error that names the field if no such experiment can begin.
func (e Experiment) Check() error {
	switch {
	case e.Run == "":
		return errors.New("run: missing")
	case e.Policy == "":
		return errors.New("policy: missing")
	case e.Candidate < 0:
		return fmt.Errorf("candidate: %d: versions count from 0", e.Candidate)
	case e.Control < 0:
		return fmt.Errorf("control: %d: versions count from 0", e.Control)
	case e.Candidate == e.Control:
		return fmt.Errorf("candidate: %d: it is the control too", e.Candidate)
	case !(e.Share > 0 && e.Share < 1): // NaN too
		return fmt.Errorf("share: %g: want more than 0 and less than 1", e.Share)
	}
	return nil
}

// JudgedConversation is a conversation of an experiment, and the first value that somebody
// gave it or one of its replies.
type JudgedConversation struct {
	Number    int
	User      string // as in Conversation
	Candidate bool
	Value     float64 // within [-1, 1]: see Feedback.Value
	At        time.Time
}

// Unit names what was assigned a version: the user, or the conversation if its user is
// unknown.
func (j JudgedConversation) Unit() string {
	if j.User != "" {
		return "user " + j.User
	}
	return fmt.Sprintf("conversation %d", j.Number)
}
