package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Reason is why a curriculum chose a task.
type Reason string

// The reasons.
const (
	ReasonBand     Reason = "band"     // its pass rate lies between the bounds
	ReasonExplored Reason = "explored" // its last attempt was the longest ago
	ReasonNew      Reason = "new"      // it has no result that counts, and the band has too few tasks
	ReasonWidened  Reason = "widened"  // it lies next to the band, which has too few tasks
	ReasonEasy     Reason = "easy"     // it is among the easiest, from which the step chooses
	ReasonHarder   Reason = "harder"   // a reserve: the next easiest task after those
	ReasonStage    Reason = "stage"    // it belongs to the stage
)

// Draw is a task that a step attempts, or may attempt in place of another.
type Draw struct {
	Task int    `json:"task"` // index in the train split
	Why  Reason `json:"why"`
	// Rate is the task's estimated pass rate, or its difficulty if the spec names one;
	// nil if neither is known.
	Rate *float64 `json:"rate,omitempty"`
}

// Choice says which tasks a step attempts under a curriculum, and why. Key: Run, Policy,
// Step.
type Choice struct {
	Run    string `json:"run"`
	Policy string `json:"policy"`
	Step   int    `json:"step"`
	// Settings is the curriculum as the step read it, including changes made during the
	// run.
	Settings json.RawMessage `json:"settings"`
	// Draws has no task twice. The first Places draws are the step's batch; the others
	// are reserves, in the order in which they replace groups.
	Draws  []Draw `json:"draws"`
	Places int    `json:"places"`
	// Left counts the tasks that are not quarantined, within the stage if there is one.
	Left int `json:"left"`
	// Known counts the tasks with a result that counts, InBand those between the bounds.
	Known  int `json:"known,omitempty"`
	InBand int `json:"in_band,omitempty"`
	// Low and High are the bounds, or how far they were widened to fill the step.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	// Open is how many of the easiest tasks the step chose from.
	Open int `json:"open,omitempty"`
	// Stage is the number of the stage, from 0. Since is its first step, and Title its
	// name. Moved says why it began, in the step that begins it.
	Stage int    `json:"stage,omitempty"`
	Since int    `json:"since,omitempty"`
	Title string `json:"title,omitempty"`
	Moved string `json:"moved,omitempty"`
	// Note says which settings of the curriculum could not be followed.
	Note string    `json:"note,omitempty"`
	At   time.Time `json:"at"`
}

// Place returns the draw of the k-th group that the step attempts, from 0: the batch
// first, then the reserves. If fewer tasks are left, they repeat in the same order.
func (c Choice) Place(k int) Draw {
	if len(c.Draws) == 0 || k < 0 {
		return Draw{Task: -1} // no choice that is on record is empty
	}
	return c.Draws[k%len(c.Draws)]
}

// DrawOf returns the draw of a group of the step. kind and task are those of the address
// of its attempts.
func (c Choice) DrawOf(kind Kind, task int) Draw {
	if kind == Reserve {
		return c.Place(c.Places + task)
	}
	return c.Place(task - (c.Step-1)*c.Places)
}

// Count returns how many tasks of the batch were drawn for a reason.
func (c Choice) Count(why Reason) int {
	n := 0
	for k := range c.Places {
		if c.Place(k).Why == why {
			n++
		}
	}
	return n
}

// String describes the choice in a sentence.
func (c Choice) String() string {
	var parts []string
	for _, why := range []Reason{ReasonBand, ReasonExplored, ReasonNew, ReasonWidened, ReasonEasy, ReasonHarder, ReasonStage} {
		if n := c.Count(why); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c.phrase(why)))
		}
	}
	text := strings.Join(parts, ", ")
	for _, more := range []string{c.Moved, c.Note} {
		if more != "" {
			text += "; " + more
		}
	}
	return text
}

// Because says why a task was drawn, with the number that decided, if there is one.
func (c Choice) Because(d Draw) string {
	if d.Rate == nil {
		return c.phrase(d.Why)
	}
	var settings struct {
		Difficulty string `json:"difficulty"`
	}
	number := "pass rate about"
	if json.Unmarshal(c.Settings, &settings) == nil && settings.Difficulty != "" {
		number = settings.Difficulty
	}
	return fmt.Sprintf("%s, %s %.3g", c.phrase(d.Why), number, *d.Rate)
}

// phrase puts a reason into words.
func (c Choice) phrase(why Reason) string {
	switch why {
	case ReasonBand:
		return "in the band"
	case ReasonWidened:
		return "next to the band"
	case ReasonEasy:
		return fmt.Sprintf("of the %d easiest", c.Open)
	case ReasonStage:
		return "of stage " + c.Title
	}
	return string(why)
}

// Metrics returns the numbers that describe the choice among the metrics of its step.
func (c Choice) Metrics() map[string]float64 {
	out := map[string]float64{"curriculum/left": float64(c.Left)}
	share := func(name string, why Reason) { out["curriculum/"+name] = float64(c.Count(why)) / float64(c.Places) }
	switch {
	case c.Title != "":
		out["curriculum/stage"] = float64(c.Stage + 1)
	case c.Open > 0:
		out["curriculum/open"] = float64(c.Open)
	default:
		share("band", ReasonBand)
		share("explored", ReasonExplored)
		share("new", ReasonNew)
		share("widened", ReasonWidened)
		out["curriculum/known"], out["curriculum/in_band"] = float64(c.Known), float64(c.InBand)
	}
	return out
}

// StepScore is the reward of one sample of a step's group.
type StepScore struct {
	Kind   Kind   `json:"kind"`
	Step   int    `json:"step"`
	TaskID string `json:"task_id"`
	Score
}

// Quarantine says that a step could not train on a task, and why; a task of the
// reserve took its place. Key: Run, Policy, Step, Kind, Task.
type Quarantine struct {
	Run    string    `json:"run"`
	Policy string    `json:"policy"`
	Step   int       `json:"step"`
	Kind   Kind      `json:"kind"`  // Train, or Reserve for a replacement
	Task   int       `json:"task"`  // ordinal in its stream
	Index  int       `json:"index"` // in the train split
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}
