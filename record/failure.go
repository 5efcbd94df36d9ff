package record

import "encoding/json"

// Failure is the result of a run that did not complete.
type Failure struct {
	// Error says why, in words for people.
	Error string `json:"error"`
	// Detail is the error as Temporal has it, if that says more.
	Detail string `json:"detail,omitempty"`
	// By is the identity of whoever terminated the run, as Temporal has it.
	By string `json:"by,omitempty"`
}

// Failure returns why a run did not complete. It is empty for a run that completed or is
// under way.
func (r Run) Failure() Failure {
	var f Failure
	if r.Status == Running || r.Status == Completed || json.Unmarshal(r.Result, &f) != nil {
		return Failure{}
	}
	return f
}

// Result returns f as the result of a run.
func (f Failure) Result() json.RawMessage {
	text, err := json.Marshal(f)
	if err != nil {
		return nil // strings always encode
	}
	return text
}
