package record

import (
	"encoding/json"
	"fmt"
)

// Stop is a person's request to end a run after the steps that have begun.
type Stop struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	After  int    `json:"after"` // the last step
	Of     int    `json:"of"`    // the number of steps that the spec asks for
}

// Text says who asked for the stop and why.
func (s Stop) Text() string {
	if s.Reason == "" {
		return "asked by " + s.By
	}
	return fmt.Sprintf("asked by %s: %s", s.By, s.Reason)
}

// Stop returns the request that ended a run. It is nil unless the run was stopped.
func (r Run) Stop() *Stop {
	var result struct {
		Stopped *Stop `json:"stopped"`
	}
	if r.Status != Stopped || json.Unmarshal(r.Result, &result) != nil {
		return nil
	}
	return result.Stopped
}

// Failure is the result of a run that did not complete.
type Failure struct {
	// Error says why, in words for people.
	Error string `json:"error"`
	// Detail is the error as Temporal has it, if that says more.
	Detail string `json:"detail,omitempty"`
	// Final is true if a retry would meet the same error again.
	Final bool `json:"final,omitempty"`
	// By is the identity of whoever terminated the run, as Temporal has it.
	By string `json:"by,omitempty"`
}

// Failure returns why a run did not complete. It is empty for a run that completed, was
// stopped, or is under way.
func (r Run) Failure() Failure {
	var f Failure
	if r.Status == Running || r.Status == Completed || r.Status == Stopped || json.Unmarshal(r.Result, &f) != nil {
		return Failure{}
	}
	return f
}

// CanRetry reports whether a retry can help a run that ended without completing. A run
// that was refused can only be started again, with another spec.
func (r Run) CanRetry() bool {
	switch r.Status {
	case Failed, Cancelled, Terminated, TimedOut:
		return !r.Failure().Final
	}
	return false
}

// Result returns f as the result of a run.
func (f Failure) Result() json.RawMessage {
	text, err := json.Marshal(f)
	if err != nil {
		return nil // strings always encode
	}
	return text
}
