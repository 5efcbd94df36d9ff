package record

import (
	"encoding/json"
	"errors"
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
