package record

import (
	"time"

	"github.com/fulgurite/fulgurite/trace"
)

// Quarantine says that a step could not train on a task, and why; a task of the
// reserve took its place. Key: Run, Policy, Step, Kind, Task.
type Quarantine struct {
	Run    string     `json:"run"`
	Policy string     `json:"policy"`
	Step   int        `json:"step"`
	Kind   trace.Kind `json:"kind"`  // trace.Train, or trace.Reserve for a replacement
	Task   int        `json:"task"`  // ordinal in its stream
	Index  int        `json:"index"` // in the train split
	Reason string     `json:"reason"`
	At     time.Time  `json:"at"`
}
