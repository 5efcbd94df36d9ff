package record

import (
	"errors"
	"fmt"
	"time"
)

// ShadowReply is what a candidate replied to a recorded call that the promoted version had
// answered in use. Nobody was shown it. Key: Run, Policy, Candidate, CallID.
type ShadowReply struct {
	Run          string `json:"run"`
	Policy       string `json:"policy"`
	Candidate    int    `json:"candidate"`
	Conversation int    `json:"conversation"` // the number of the conversation that the call is part of
	CallID       string `json:"call_id"`
	// Reply is the text, and then each call of a tool as a line of JSON. It is empty if there
	// is neither, also if the candidate only thought.
	Reply    string        `json:"reply"`
	Tokens   int           `json:"tokens"`
	Finish   string        `json:"finish"` // as in Call; empty if the candidate failed
	Duration time.Duration `json:"duration"`
	// Error says why there is no reply; empty if there is one.
	Error string    `json:"error,omitempty"`
	At    time.Time `json:"at"`
}

// Check returns an error that names the field if no such reply can be recorded.
func (r ShadowReply) Check() error {
	switch {
	case r.Run == "":
		return errors.New("run: missing")
	case r.Policy == "":
		return errors.New("policy: missing")
	case r.Candidate < 0:
		return fmt.Errorf("candidate: %d: versions count from 0", r.Candidate)
	case r.CallID == "":
		return errors.New("call_id: missing")
	case (r.Finish == "") == (r.Error == ""):
		return fmt.Errorf("finish: %q, and error: %q: want one of them", r.Finish, r.Error)
	}
	return nil
}

// ShadowQuery selects what candidates replied in the shadow.
type ShadowQuery struct {
	Run, Policy string
	// Candidate is the candidate that replied; nil is the newest that did.
	Candidate *int
	Before    *int // only conversations with smaller numbers; nil is all
	Limit     int  // how many conversations at most; 0 is all
}
