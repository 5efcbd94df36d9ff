// Package search holds the searches that improve the named prompts of an agent: GEPA
// (Agrawal et al. 2025, arXiv 2507.19457, in the form of the Python package gepa 0.1.4)
// and APO (ProTeGi, Pryzant et al. 2023, arXiv 2305.03495, in the form of Agent Lightning
// 0.3). It also holds the texts that ask a model for a better prompt, and the functions
// that read what the model replies.
//
// A search is a state machine. Next says what the search needs now: evaluations of
// candidates on tasks, and texts from a reflector. The driver does that, in any order and
// as much of it at once as it likes, and brings each answer to Answer. When Next says that
// the search is done, it names the winner, which the validation split chose. The driver
// then tests the winner on a gate split, which no search sees.
//
// It is not a driver: it runs no agent, asks no model, waits for nothing and knows no
// clock. It starts no goroutine. A workflow may call it directly.
//
// What one may rely on:
//   - A search depends only on its settings, its draws and the answers. The order in which
//     the answers of one step arrive changes nothing.
//   - The whole state is JSON. A search that Decode returns goes on exactly as the one
//     that was encoded. A state holds the texts and validation scores of all candidates of
//     the archive, so a driver keeps it outside of a workflow's history: 1,500 short ones
//     with 50 scores each take 2 MB.
//   - A request has an id, and equal states have equal requests with equal ids. An id
//     occurs once in a search.
//   - No request is made that the budget does not cover. Only what an answer reports
//     beyond what was asked for, Answer.Retries, can exceed it.
//   - A task without a score is missing. It counts neither as 0 nor as absent: a candidate
//     that misses a task is not compared with candidates that have it. See whole.go.
//   - A reflection that was refused costs its share of the budget, is counted, and never
//     stops the search.
//   - The winner was measured on the whole validation split. A gain on a minibatch only
//     decides what is measured there.
package search

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Algorithms.
const (
	AlgorithmGEPA = "gepa"
	AlgorithmAPO  = "apo"
)

// Search is a search for better prompts.
type Search interface {
	// Next returns what the search needs now. It changes nothing.
	Next() Step
	// Answer takes the answer to one of the requests that Next returned. It returns the
	// decisions that became possible with it, for the driver's record. An error means that
	// the answer was not taken and the state is as before.
	Answer(Answer) ([]Decision, error)
	// Stopped returns the end that the search has if nobody goes on with it: with the best
	// candidate so far.
	Stopped() Done
	// Account returns what the search has spent and what was refused.
	Account() Account
	// Use replaces the source of chance, which is otherwise the seed of the settings. It is
	// not part of the state.
	Use(Draws)
}

// Step is what a search needs now: requests, which may be served at once, or nothing any
// more.
type Step struct {
	Requests []Request `json:"requests,omitempty"`
	Done     *Done     `json:"done,omitempty"`
}

// Kind is what a request asks for.
type Kind string

// Kinds of requests. The answer to Evaluate has Results. The answers to the others have
// a Text or a Refusal.
const (
	// Evaluate asks for the scores of a candidate on tasks.
	Evaluate Kind = "evaluate"
	// Reflect asks for a new text of a prompt, given what attempts did with it (GEPA).
	Reflect Kind = "reflect"
	// Critique asks what is wrong with a prompt, given attempts: the textual gradient (APO).
	Critique Kind = "critique"
	// Edit asks for a new text of a prompt that follows a critique (APO).
	Edit Kind = "edit"
)

// Splits of the tasks that a search sees.
const (
	SplitTrain      = "train"
	SplitValidation = "validation"
)

// Purpose is what a part of the budget is for.
type Purpose string

// Purposes.
const (
	// PurposeMinibatch is for rollouts on a few tasks, from which a reflection learns or
	// which decide whether a candidate is worth a validation.
	PurposeMinibatch Purpose = "minibatch"
	// PurposeValidation is for rollouts that measure candidates.
	PurposeValidation Purpose = "validation"
	// PurposeReflections is for requests to the reflector.
	PurposeReflections Purpose = "reflections"
)

// Request is one thing that a search needs.
type Request struct {
	// ID names the request within the search.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Candidate is what to evaluate, or the one whose prompt is to be improved.
	Candidate Candidate `json:"candidate"`
	// Split is where Tasks come from, and Purpose which part of the budget pays. Only with
	// Evaluate.
	Split   string  `json:"split,omitempty"`
	Purpose Purpose `json:"purpose,omitempty"`
	// Tasks are the indexes of the tasks in their split. A task may occur twice, and then
	// has two results with attempts of their own. Only with Evaluate.
	Tasks []int `json:"tasks,omitempty"`
	// Samples is the number of attempts at each task. Only with Evaluate.
	Samples int `json:"samples,omitempty"`
	// Prompt is the name of the prompt to improve. Not with Evaluate.
	Prompt string `json:"prompt,omitempty"`
	// Variant is the number of the text that asks, for kinds that have several.
	Variant int `json:"variant,omitempty"`
	// Shown are the results that the reflector sees, in this order. Only with Reflect and
	// Critique.
	Shown []Result `json:"shown,omitempty"`
	// Critique is what the edit follows. Only with Edit.
	Critique string `json:"critique,omitempty"`
}

// Result is what a candidate did on one task.
type Result struct {
	Task int `json:"task"`
	// Score is the mean reward of the task's attempts. Nil means that there is none: the
	// task did not finish, or was quarantined.
	Score    *float64  `json:"score"`
	Attempts []Attempt `json:"attempts,omitempty"`
}

// Attempt refers to one try at a task.
type Attempt struct {
	// Trace says where the driver finds what the attempt did. A search does not read it.
	Trace string `json:"trace"`
	// Reward is nil if the attempt has none.
	Reward *float64 `json:"reward,omitempty"`
}

// Answer is the answer to one request.
type Answer struct {
	// Request is the id of the request.
	Request string `json:"request"`
	// Results are one for each of the request's tasks, in their order.
	Results []Result `json:"results,omitempty"`
	// Retries is the number of rollouts beyond those that were asked for, because some
	// were tried again. They count as spent.
	Retries int `json:"retries,omitempty"`
	// Text is the reflector's text, as ReadText or ReadCritique returned it.
	Text string `json:"text,omitempty"`
	// Refusal says why there is no text.
	Refusal Refusal `json:"refusal,omitempty"`
}

// Refusal is the reason why the reply of a reflector is not used.
type Refusal string

// Reasons for refusing a reply. A search itself refuses texts that are unchanged or known.
const (
	RefusedFailed     Refusal = "failed"              // the reflector did not reply
	RefusedEmpty      Refusal = "empty"               // the reply has no text
	RefusedCutOff     Refusal = "cut_off"             // the reply ended before it was complete
	RefusedNoFence    Refusal = "no_fence"            // the text does not stand in a fence
	RefusedMarkup     Refusal = "markup"              // the reply is a web page, such as a proxy's error
	RefusedCopies     Refusal = "copies_answer"       // the text contains the answer of a task
	RefusedUnknown    Refusal = "unknown_placeholder" // the text has a placeholder that the prompt does not declare, or names another prompt
	RefusedLost       Refusal = "missing_placeholder" // the text lacks a placeholder that the prompt declares
	RefusedTooLong    Refusal = "too_long"            // the text is over prompts.max_bytes
	RefusedUnreadable Refusal = "unreadable"          // the text is not UTF-8, or has control characters
	RefusedUnchanged  Refusal = "unchanged"           // the text is the one that it should replace
	RefusedKnown      Refusal = "known"               // the texts are those of a candidate that it would be compared with (APO)
)

// Refusals returns all reasons for refusing a reply.
func Refusals() []Refusal {
	return []Refusal{
		RefusedFailed, RefusedEmpty, RefusedCutOff, RefusedNoFence, RefusedMarkup, RefusedCopies, RefusedUnknown,
		RefusedLost, RefusedTooLong, RefusedUnreadable, RefusedUnchanged, RefusedKnown,
	}
}

// Reason is why a search ended.
type Reason string

// Reasons.
const (
	// EndBudget means that the budget does not cover what the search needs next.
	EndBudget Reason = "budget"
	// EndNoProgress means that optimizer.patience proposals (GEPA) or rounds (APO) passed
	// without a better candidate.
	EndNoProgress Reason = "no_progress"
	// EndSolved means that the winner has the perfect score on every validation task.
	EndSolved Reason = "solved"
	// EndRounds means that all rounds were done (APO).
	EndRounds Reason = "rounds"
	// EndStopped means that a person ended the search.
	EndStopped Reason = "stopped"
	// EndUnmeasured means that the seed got a score on no validation task, so that nothing
	// can be compared with it.
	EndUnmeasured Reason = "unmeasured"
)

// Done is the end of a search.
type Done struct {
	Reason Reason `json:"reason"`
	// Purpose is the part of the budget that ran out, with EndBudget.
	Purpose Purpose `json:"purpose,omitempty"`
	// Winner has the highest mean on the validation split, the earliest of several. It is
	// the seed if no candidate is better.
	Winner Candidate `json:"winner"`
	// Score and SeedScore are means over the same validation tasks. They are nil with
	// EndUnmeasured.
	Score     *float64 `json:"score"`
	SeedScore *float64 `json:"seed_score"`
	// Excluded are the validation tasks that no mean contains, because even the seed got no
	// score on them.
	Excluded []int `json:"excluded,omitempty"`
}

// Verdict is what a search decided about a proposal.
type Verdict string

// Verdicts.
const (
	// Accepted means that the candidate joined the archive (GEPA) or the beam (APO).
	Accepted Verdict = "accepted"
	// Rejected means that its scores were not high enough.
	Rejected Verdict = "rejected"
	// Refused means that there is no candidate, because the reply was refused.
	Refused Verdict = "refused"
	// Perfect means that nothing was proposed, because the minibatch was solved.
	Perfect Verdict = "perfect"
	// Unmeasured means that scores were missing, so that nothing could be compared.
	Unmeasured Verdict = "unmeasured"
	// Measured means that the candidate was measured on the whole validation split: the
	// seed, or the leader of a beam (APO).
	Measured Verdict = "measured"
)

// Decision is one thing that a search decided, for the record. A search does not keep it.
type Decision struct {
	// Proposal counts the proposals, from 0. The seed has -1.
	Proposal int     `json:"proposal"`
	Verdict  Verdict `json:"verdict"`
	// Merge says that the candidate was to combine its two parents.
	Merge bool `json:"merge,omitempty"`
	// Candidate is nil if there is none.
	Candidate *Candidate `json:"candidate,omitempty"`
	// Parents are the ids of the candidates that it was made from.
	Parents []string `json:"parents,omitempty"`
	Prompt  string   `json:"prompt,omitempty"`
	Refusal Refusal  `json:"refusal,omitempty"`
	// Tasks are those on which Before (the parent, or the sums of both parents of a merge)
	// and After (the candidate) were compared. A nil is a missing score.
	Tasks  []int      `json:"tasks,omitempty"`
	Before []*float64 `json:"before,omitempty"`
	After  []*float64 `json:"after,omitempty"`
	// Score is the mean over the validation split or, where a round of APO accepts or
	// rejects, over the round's batch of it.
	Score *float64 `json:"score,omitempty"`
	// Best says that the candidate is the best so far on the whole validation split.
	Best bool `json:"best,omitempty"`
}

// Account is what a search has spent and refused.
type Account struct {
	Spent Budget `json:"spent"`
	// Missing is the number of results without a score.
	Missing  int             `json:"missing"`
	Refusals map[Refusal]int `json:"refusals"`
}

// ErrNotOpen means that an answer is for a request that the search does not wait for.
var ErrNotOpen = errors.New("the search does not wait for it")

// Encode returns the state of a search.
func Encode(s Search) ([]byte, error) { return json.Marshal(s) }

// Decode returns the search with a state. Its source of chance is the seed of its settings.
func Decode(state []byte) (Search, error) {
	var header struct {
		Algorithm string `json:"algorithm"`
	}
	if err := json.Unmarshal(state, &header); err != nil {
		return nil, fmt.Errorf("decode state of a search: %w", err)
	}
	var s Search
	switch header.Algorithm {
	case AlgorithmGEPA:
		s = new(GEPA)
	case AlgorithmAPO:
		s = new(APO)
	default:
		return nil, fmt.Errorf("decode state of a search: the algorithm %q is unknown, want %s or %s", header.Algorithm, AlgorithmGEPA, AlgorithmAPO)
	}
	if err := json.Unmarshal(state, s); err != nil {
		return nil, fmt.Errorf("decode state of a search: %w", err)
	}
	return s, nil
}
