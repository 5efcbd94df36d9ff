package record

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Conversation is what one client said with one served version, as far as it is recorded.
// Its calls are those of the attempt at ConversationAddress.
type Conversation struct {
	Run    string `json:"run"`
	Number int    `json:"number"` // within the run, from 0, allocated by the store
	// Name is what the client calls it by a header; empty if it is found by its messages.
	Name string `json:"name,omitempty"`
	// Key is the name of the API key by which it came; empty is the serving key of the
	// process, or none.
	Key string `json:"key,omitempty"`
	// User is the keyed hash of the user, hex; empty if the client names none.
	User    string `json:"user,omitempty"`
	Policy  string `json:"policy"`
	Version int    `json:"version"` // that answers all its calls
	// Pinned says that the client asked for the version by its number.
	Pinned bool `json:"pinned,omitempty"`
	// Candidate says that an experiment gave the conversation to the candidate, and
	// Experiment which: the candidate's number; 0 is none.
	Experiment int  `json:"experiment,omitempty"`
	Candidate  bool `json:"candidate,omitempty"`
	// Redacted says that stored texts differ from what was said: its calls have no tokens.
	Redacted bool      `json:"redacted,omitempty"`
	Begun    time.Time `json:"begun"`
	Last     time.Time `json:"last"` // when its last call was recorded
	Calls    int       `json:"calls"`
	// Opening is the digest of the request that begins the conversation, by which the same
	// request finds it if the client sends it again. It is written and not read.
	Opening string `json:"-"`
}

// Address returns the address of the attempt that has the conversation's calls.
func (c Conversation) Address() Address { return ConversationAddress(c.Run, c.Number) }

// ConversationAddress returns the address of the attempt that has the calls of a
// conversation.
func ConversationAddress(run string, number int) Address {
	return Address{RolloutID{Run: run, Kind: Served, Task: number}, 1}
}

// ServedCall is what the record of a conversation learns with one of its calls.
type ServedCall struct {
	// Client is the Key of the conversation.
	Client string
	// Digest is that of the messages up to and with the reply, by which the next request
	// finds the conversation; empty if no request can repeat them.
	Digest string
	// Redacted says that the stored bodies differ from what was said.
	Redacted bool
}

// Feedback is what somebody says of a recorded reply, or of a conversation. An ID is taken
// once.
type Feedback struct {
	Run          string `json:"run"`
	ID           string `json:"id"`
	Conversation int    `json:"conversation"`
	// CallID is the reply that it is about; empty is the whole conversation.
	CallID string   `json:"call_id,omitempty"`
	Reward *float64 `json:"reward,omitempty"` // within [-1, 1]
	// Thumb is "up", "down" or empty.
	Thumb string `json:"thumb,omitempty"`
	// CorrectedText is what the reply should have said; nil is no correction.
	CorrectedText *string `json:"corrected_text,omitempty"`
	// PreferredOver is the id of another recorded reply to the same request, which is worse
	// than the reply CallID.
	PreferredOver string   `json:"preferred_over,omitempty"`
	Labels        []string `json:"labels,omitempty"`
	User          string   `json:"user,omitempty"` // as in Conversation
	Comment       string   `json:"comment,omitempty"`
	// Redacted says that the corrected text differs from what was said: nothing is trained on
	// it.
	Redacted bool      `json:"redacted,omitempty"`
	Key      string    `json:"key,omitempty"` // as in Conversation
	At       time.Time `json:"at"`
	// Step is the segment that learned from it; 0 is none so far.
	Step int `json:"step,omitempty"`
}

// ErrContradiction is wrapped by the refusal of feedback that says the opposite of what the
// same user said: that A is better than B, and that B is better than A.
var ErrContradiction = errors.New("it contradicts earlier feedback of the same user")

// ErrTooMuchFeedback is wrapped by the refusal of further feedback of a conversation.
var ErrTooMuchFeedback = errors.New("the conversation has too much feedback")

// MaxFeedback is how much feedback one conversation may have.
const MaxFeedback = 1024

// FeedbackKind is what feedback can say. One piece may say several things.
type FeedbackKind string

// The kinds of feedback that something can be learned from.
const (
	FeedbackValue      FeedbackKind = "value"      // a reward, or a thumb
	FeedbackThumb      FeedbackKind = "thumb"      // of one reply
	FeedbackCorrection FeedbackKind = "correction" // of one reply
	FeedbackPreference FeedbackKind = "preference" // of one reply over another
)

// Thumbs.
const (
	ThumbUp   = "up"
	ThumbDown = "down"
)

// Value returns the feedback as one number of [-1, 1]: its reward, or 1 or -1 for a thumb.
// ok is false if it has neither.
func (f Feedback) Value() (v float64, ok bool) {
	switch {
	case f.Reward != nil:
		return *f.Reward, true
	case f.Thumb == ThumbUp:
		return 1, true
	case f.Thumb == ThumbDown:
		return -1, true
	}
	return 0, false
}

// ConversationQuery selects conversations of a run. Zero fields select all.
type ConversationQuery struct {
	Run     string
	Policy  string
	Version *int
	// Label is a label of feedback of the conversation.
	Label string
	// User is the beginning of the keyed hash of the user.
	User         string
	WithFeedback bool
	Before       int // only conversations with smaller numbers; 0 is all
	Limit        int // how many at most; 0 is all
}

// ConversationSummary is a conversation and how much feedback it has.
type ConversationSummary struct {
	Conversation
	Feedback int `json:"feedback"`
	Unused   int `json:"unused"` // feedback that no segment has learned from
	// Value is the mean of the feedback that has one (see Feedback.Value), of its replies and of
	// the whole; nil if nobody gave one. Values is how many it is the mean of.
	Value  *float64 `json:"value,omitempty"`
	Values int      `json:"values"`
}

// Scopes of serving keys.
const (
	// ScopeServe lets a client ask versions.
	ScopeServe = "serve"
	// ScopeFeedback lets a client judge the replies that it got by the same key.
	ScopeFeedback = "feedback"
	// ScopeFeedbackAny lets a client judge the replies that others got, if it knows their
	// ids.
	ScopeFeedbackAny = "feedback-any"
	// ScopeConsent says that whoever speaks through the client has consented to be recorded.
	ScopeConsent = "consent"
)

// ServingKey is an API key of a client of served versions. The key itself is not on record.
type ServingKey struct {
	Name   string   `json:"name"`
	Scopes []string `json:"scopes"`
	// PerMinute is how many requests a minute are answered; 0 is no limit.
	PerMinute int       `json:"per_minute"`
	Created   time.Time `json:"created"`
	Revoked   time.Time `json:"revoked,omitzero"` // zero while the key is valid
}

// HasScope reports whether the key has a scope.
func (k ServingKey) HasScope(scope string) bool { return slices.Contains(k.Scopes, scope) }

// MaxPerMinute is the largest limit of requests a minute.
const MaxPerMinute = 1_000_000

// ErrServingKey is wrapped by every error of ServingKey.Check.
var ErrServingKey = errors.New("bad serving key")

// Check returns an error if no such key can be made.
func (k ServingKey) Check() error {
	if !runName.MatchString(k.Name) {
		return fmt.Errorf("%w: name %q: use 1 to 63 of a-z, 0-9, '.', '_' and '-', with a letter or digit at both ends", ErrServingKey, k.Name)
	}
	if len(k.Scopes) == 0 {
		return fmt.Errorf("%w: it has no scope: give %s, %s, %s or %s", ErrServingKey, ScopeServe, ScopeFeedback, ScopeFeedbackAny, ScopeConsent)
	}
	for i, scope := range k.Scopes {
		switch scope {
		case ScopeServe, ScopeFeedbackAny:
		case ScopeFeedback, ScopeConsent:
			if !k.HasScope(ScopeServe) {
				return fmt.Errorf("%w: scope %s has no effect without %s, because it is about replies that the client gets by this key; %s is about those of others", ErrServingKey, scope, ScopeServe, ScopeFeedbackAny)
			}
		default:
			return fmt.Errorf("%w: scope %q: want %s, %s, %s or %s", ErrServingKey, scope, ScopeServe, ScopeFeedback, ScopeFeedbackAny, ScopeConsent)
		}
		if slices.Contains(k.Scopes[:i], scope) {
			return fmt.Errorf("%w: scope %s is given twice", ErrServingKey, scope)
		}
	}
	if k.PerMinute < 0 || k.PerMinute > MaxPerMinute {
		return fmt.Errorf("%w: %d requests a minute: want 0 (no limit) to %d", ErrServingKey, k.PerMinute, MaxPerMinute)
	}
	return nil
}

// Segment is what one step of a run learns from conversations. The first recorded segment of
// a step counts.
type Segment struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Step   int    `json:"step"`
	// Parent is the version that learns from it: the promoted one, which answered.
	Parent int `json:"parent"`
	// Objective is that of the spec.
	Objective string `json:"objective"`
	// Feedback lists the ids of the feedback that it uses up: it learns from them, or no
	// segment can.
	Feedback []string `json:"feedback"`
	// Conversations lists the conversations of that feedback, in order, and Calls how many
	// calls each had then: later ones are no part of the segment.
	Conversations []int `json:"conversations"`
	Calls         []int `json:"calls"`
	// Replies is how many replies, or pairs, it learns from.
	Replies int `json:"replies"`
	// LeftOut counts what has feedback but can't be learned from, by reason.
	LeftOut map[string]int `json:"left_out,omitempty"`
	At      time.Time      `json:"at"`
}
