package record

import (
	"encoding/json"
	"errors"
	"time"
)

// Forgetting is the status of a run that is being removed: nobody may use it any more, and
// the removal may have been interrupted.
const Forgetting Status = "forgetting"

// ErrForgotten says that a run, or what a task left in it, was removed at the request of a
// person.
var ErrForgotten = errors.New("forgotten")

// ForgottenKind is the kind of thing that was removed.
type ForgottenKind string

// The kinds of things that are removed.
const (
	ForgottenRun     ForgottenKind = "run"     // a run with all that it left
	ForgottenTask    ForgottenKind = "task"    // what a task left in a run
	ForgottenUser    ForgottenKind = "user"    // what a user said in a run
	ForgottenRecords ForgottenKind = "records" // bodies, spans and printed output of a run
)

// Forgotten is the tombstone of something that was removed. It is on record before
// anything is removed. Key: Run, What, Task.
type Forgotten struct {
	Run  string        `json:"run"`
	What ForgottenKind `json:"what"`
	// Task is the id of the task of a ForgottenTask. For a ForgottenUser it is the keyed hash
	// of the user, a slash, and the number of the removal: users may come again.
	Task   string    `json:"task,omitempty"`
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Begun  time.Time `json:"begun"`
	// Ended is zero until everything is gone.
	Ended time.Time `json:"ended,omitzero"`
	// Report says what was found before the removal.
	Report json.RawMessage `json:"report,omitempty"`
}

// ForgottenTaskReport says what a task had left in a run.
type ForgottenTaskReport struct {
	Run    string `json:"run"`
	Task   string `json:"task"`
	Splits []Kind `json:"splits"` // those that had the task
	// Attempts, Calls and Tokens count the attempts at the task, and what they recorded.
	Attempts int `json:"attempts"`
	Calls    int `json:"calls"`
	Tokens   int `json:"tokens"`
	// Steps are those whose batch had an attempt at the task; their batches are removed
	// whole.
	Steps []int `json:"steps"`
	// Versions are those of this run and of others that were trained on the task, or made
	// from such a version. They stay. A step that attempted the task and whose batch was
	// removed before counts as trained on it.
	Versions []string `json:"versions"`
	// Histories is how many workflow executions Temporal was told to delete.
	Histories int `json:"histories"`
	// Archive is how many bytes the archived histories of the run had, which are removed
	// whole; 0 if there were none.
	Archive int64 `json:"archive_bytes"`
	// Left says what is not removed although it may tell of the task.
	Left []string `json:"left"`
}

// ForgottenUserReport says what a user had left in a run.
type ForgottenUserReport struct {
	Run string `json:"run"`
	// Conversations are the numbers of those that are removed, and Calls and Tokens count what
	// they recorded.
	Conversations []int `json:"conversations"`
	Calls         int   `json:"calls"`
	Tokens        int   `json:"tokens"`
	// Feedback counts what the user said of replies, in conversations of others too. What
	// others said in the conversations goes with these and is not counted.
	Feedback int `json:"feedback"`
	// Steps are those whose segment has some of it; their batches are removed whole.
	Steps []int `json:"steps"`
	// Versions are those of this run and of others that were made in these steps, or from
	// such a version. They stay.
	Versions []string `json:"versions"`
}

// ForgottenSteps returns the steps of a run whose batches were removed with a task or a user,
// and the tasks, in the order of the tombstones.
func ForgottenSteps(all []Forgotten) (steps map[int]bool, tasks []string) {
	steps = map[int]bool{}
	for _, f := range all {
		switch f.What {
		case ForgottenTask:
			tasks = append(tasks, f.Task)
		case ForgottenUser:
		default:
			continue
		}
		var r struct {
			Steps []int `json:"steps"`
		}
		if json.Unmarshal(f.Report, &r) != nil {
			continue // the store writes only reports that can be read
		}
		for _, s := range r.Steps {
			steps[s] = true
		}
	}
	return steps, tasks
}

// NamedFiles are the digests of blobs that rows of runs name.
type NamedFiles struct {
	// Manifests are those of versions that keep their files and of saved progress: what they
	// name is needed, too.
	Manifests []string
	// Collected are the manifests of collected versions: of what they name only the configs
	// are kept.
	Collected []string
	Batches   []string
	// Others are all others: manifests of versions as such, scores, snapshots of tasks,
	// prompts, codecs, and files of versions that are being made.
	Others []string
	// At is a moment of the store before which all rows were read, if it is not nil. Only the
	// store knows what it holds.
	At any
}

// RowCount is how many rows of a table belong to a run.
type RowCount struct {
	Table string `json:"table"`
	Rows  int    `json:"rows"`
}
