package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"
)

// ErrPinned is wrapped when a pointer that a person pinned would be moved by anything but
// a person.
var ErrPinned = errors.New("the promoted version is pinned")

// Source says what moved the promoted pointer.
type Source string

// The sources. A pin also holds the pointer in place until the unpin, which moves
// nothing.
const (
	SourceGate     Source = "gate" // the promotion rule
	SourcePromote  Source = "promote"
	SourceRollback Source = "rollback"
	SourcePin      Source = "pin"
	SourceUnpin    Source = "unpin"
)

// Promotion is one move of the promoted pointer. Key: Run, Policy, DecisionID.
type Promotion struct {
	Run        string `json:"run"`
	Policy     string `json:"policy"`
	DecisionID string `json:"decision_id"`
	Version    int    `json:"version"`
	Previous   int    `json:"previous"` // -1 when there was none
	Source     Source `json:"source"`   // empty is SourceGate
	// By is the person who moved it or approved the move, as user@host.
	By       string          `json:"by,omitempty"`
	Reason   string          `json:"reason"`
	Evidence json.RawMessage `json:"evidence,omitempty"`
	At       time.Time       `json:"at"`
}

// Pinned reports whether p, as the last move of a pointer, holds it in place.
func (p Promotion) Pinned() bool { return p.Source == SourcePin }

// Before returns the target of a rollback: the version that was promoted before the last
// one of a history. Two rollbacks go back two versions; the second does not undo the
// first. ok is false if there is no such version.
func Before(history []Promotion) (version int, ok bool) {
	var path []int // the versions that led to the current one
	for _, p := range history {
		back := -1
		if p.Source != SourceGate && p.Source != SourcePromote && p.Source != "" {
			for i, v := range path {
				if v == p.Version {
					back = i
				}
			}
		}
		if back >= 0 {
			path = path[:back]
		}
		path = append(path, p.Version)
	}
	if len(path) < 2 {
		return 0, false
	}
	return path[len(path)-2], true
}

// Holdings lists what decides which versions of a policy are needed.
type Holdings struct {
	Versions   []int // whose files are kept, by number
	Promotions []Promotion
	Undecided  []int // evaluated on the gate split, and not decided on yet
	InUse      []int // by attempts in flight
}

// Decision is a decision about a candidate that moved nothing: it was refused, a person
// rejected it, or the pointer had been pinned or moved by then. Key: Run, Policy,
// DecisionID. No Promotion has the same key.
type Decision struct {
	Run        string          `json:"run"`
	Policy     string          `json:"policy"`
	DecisionID string          `json:"decision_id"`
	Candidate  int             `json:"candidate"`
	Promoted   int             `json:"promoted"` // the version that it was compared with
	Verdict    string          `json:"verdict"`
	Reason     string          `json:"reason"`
	Evidence   json.RawMessage `json:"evidence,omitempty"`
	At         time.Time       `json:"at"`
}

// ActionName names what a person wants to do to a run.
type ActionName string

// The actions. Those from ActionPause to ActionRetry concern the run's workflow. Those
// from ActionPromote to ActionUnpin concern the promoted pointer, for which the store is
// enough.
const (
	ActionStart    ActionName = "start"
	ActionPause    ActionName = "pause"
	ActionResume   ActionName = "resume"
	ActionStop     ActionName = "stop"
	ActionSet      ActionName = "set"
	ActionApprove  ActionName = "approve"
	ActionReject   ActionName = "reject"
	ActionRetry    ActionName = "retry"
	ActionPromote  ActionName = "promote"
	ActionRollback ActionName = "rollback"
	ActionPin      ActionName = "pin"
	ActionUnpin    ActionName = "unpin"
	// ActionExport exports the files of a version, and changes nothing.
	ActionExport ActionName = "export"
)

// ActionOutcome is the outcome of an action.
type ActionOutcome string

// The outcomes. ActionAsked means that there is no answer yet, or never was one: the
// process that asked was killed, or Temporal did not answer. Asking again with the same
// id finds out.
const (
	ActionAsked   ActionOutcome = "asked"
	ActionDone    ActionOutcome = "done"
	ActionRefused ActionOutcome = "refused"
)

// Action is what a person did, or wanted to do, to a run. Key: ID.
type Action struct {
	// ID is chosen by the client that asks. Asking twice with one id is asking once.
	ID      string        `json:"id"`
	Run     string        `json:"run"`
	Name    ActionName    `json:"name"`
	By      string        `json:"by"`
	Reason  string        `json:"reason,omitempty"`
	Input   ActionInput   `json:"input"`
	At      time.Time     `json:"at"`
	Result  ActionResult  `json:"result"`
	Outcome ActionOutcome `json:"outcome"`
}

// ActionInput has the parameters of an action, except its reason.
type ActionInput struct {
	// Version is the version meant. If nil, the action decides: the version that waits
	// for approval, or the one promoted before.
	Version *int `json:"version,omitempty"`
	// Policy is the policy that the version is of, if the run promotes each of several alone,
	// and for an export of one of several. Empty is the run's own.
	Policy string `json:"policy,omitempty"`
	// Moves is how often the promoted pointer had moved when the person saw it. An action
	// that moves the pointer is refused if it has moved since. nil acts on any.
	Moves *int `json:"moves,omitempty"`
	// Values are numbers for keys of the spec, by their path.
	Values map[string]float64 `json:"values,omitempty"`
	// Record is what is recorded of the run's conversations from now on: "none",
	// "with-consent" or "all". It is set alone, and not by the run's workflow, so it may be
	// set after the run has ended.
	Record string `json:"record,omitempty"`
	// Digest is the digest of the spec with which a run is started.
	Digest string `json:"digest,omitempty"`
	// Now ends a run at once that is stopped, whatever it waits for.
	Now bool `json:"now,omitempty"`
	// Format is the format in which a version is exported.
	Format string `json:"format,omitempty"`
}

// ActionResult is the answer to an action.
type ActionResult struct {
	Message string `json:"message,omitempty"`
	// Step is the first step that the action affects, or the last step of the run.
	Step int `json:"step,omitempty"`
	// Execution is Temporal's id of the workflow that goes on.
	Execution string `json:"execution,omitempty"`
}

// Bounds of what people write.
const (
	maxBy     = 256
	maxReason = 2000
	maxValues = 50
)

var actionID = regexp.MustCompile(`^[0-9A-Za-z_-]{8,64}$`)

// Check returns an error that names the field if the action can't be asked like this.
func (a Action) Check() error {
	switch {
	case !actionID.MatchString(a.ID):
		return errors.New("id: want 8 to 64 letters, digits, _ or -")
	case a.Run == "":
		return errors.New("run: missing")
	case a.By == "":
		return errors.New("by: missing: who asks?")
	case len(a.By) > maxBy:
		return fmt.Errorf("by: %d bytes, at most %d", len(a.By), maxBy)
	case len(a.Reason) > maxReason:
		return fmt.Errorf("reason: %d bytes, at most %d", len(a.Reason), maxReason)
	case a.Input.Record != "" && (a.Name != ActionSet || len(a.Input.Values) > 0):
		return errors.New("record: it is set alone")
	case len(a.Input.Values) > maxValues:
		return fmt.Errorf("values: %d keys, at most %d at once", len(a.Input.Values), maxValues)
	case (a.Name == ActionPromote || a.Name == ActionPin || a.Name == ActionExport) && a.Input.Version == nil:
		return fmt.Errorf("version: missing: which one is to be %s?", map[ActionName]string{ActionPromote: "promoted", ActionPin: "pinned", ActionExport: "exported"}[a.Name])
	case a.Name == ActionExport && a.Input.Format == "":
		return errors.New("format: missing: hf or peft")
	case a.Input.Version != nil && *a.Input.Version < 0:
		return fmt.Errorf("version: %d: versions count from 0", *a.Input.Version)
	}
	for key, v := range a.Input.Values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("%s: %g is not a number that a run can use", key, v)
		}
	}
	return nil
}

// Same reports whether the same person asks for the same thing in both actions.
func (a Action) Same(b Action) bool {
	same := a.Run == b.Run && a.Name == b.Name && a.By == b.By && a.Reason == b.Reason && a.Input.Digest == b.Input.Digest && a.Input.Format == b.Input.Format && a.Input.Now == b.Input.Now && a.Input.Record == b.Input.Record && len(a.Input.Values) == len(b.Input.Values)
	if v, w := a.Input.Version, b.Input.Version; (v == nil) != (w == nil) || v != nil && *v != *w {
		return false
	}
	for key, v := range a.Input.Values {
		w, ok := b.Input.Values[key]
		same = same && ok && v == w
	}
	return same
}
