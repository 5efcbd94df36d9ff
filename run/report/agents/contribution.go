package agents

import (
	"github.com/fulgurite/fulgurite/run/evaluation"
	"github.com/fulgurite/fulgurite/trace"
)

// Report has the contributions of the agents of a run. The keys of its JSON are a public
// contract.
type Report struct {
	Grader string `json:"grader"`
	// NotGraded says why replies can't be graded by themselves; empty if they can.
	NotGraded string `json:"not_graded,omitempty"`
	// Level is the probability that an interval contains the mean over all tasks that could
	// have been drawn.
	Level float64 `json:"level"`
	// Cluster is the key of the tasks' metadata by whose values the intervals are; empty if
	// they are by task.
	Cluster     string       `json:"cluster,omitempty"`
	Evaluations []Evaluation `json:"evaluations"`
}

// Evaluation is about the attempts of an evaluation, either those at the temperature of
// the spec or those at temperature 0.
type Evaluation struct {
	Split   trace.Kind `json:"split"`
	Version int        `json:"version"`
	Greedy  bool       `json:"greedy"` // at temperature 0
	// Attempts is how many have a reward. The others are left out.
	Attempts int `json:"attempts"`
	// Mean is the mean reward of the attempts.
	Mean   *evaluation.Estimate `json:"mean"`
	Ends   Ends                 `json:"ends"`
	Agents []Agent              `json:"agents"` // in the order in which they first speak
	// Ungraded counts the attempts whose replies could not be graded again, and Reasons
	// says why, each reason once.
	Ungraded int      `json:"ungraded,omitempty"`
	Reasons  []string `json:"reasons,omitempty"`
}

// Ends counts attempts by how they ended. Each attempt is in the first class that it
// belongs to.
type Ends struct {
	// Right counts the attempts whose reward is a success.
	Right int `json:"right"`
	// Prose counts those whose result is a success once the prose around it is removed.
	Prose int `json:"prose"`
	// NoReply counts those without a model call on record.
	NoReply int `json:"no_reply"`
	// CutOff counts those with a reply that ended at a limit of tokens.
	CutOff int `json:"cut_off"`
	// Failed counts those whose agent failed.
	Failed int `json:"failed"`
	// NoToolCall counts those that offered tools, but in whose replies no tool call could be
	// read.
	NoToolCall int `json:"no_tool_call"`
	// Wrong counts all others.
	Wrong int `json:"wrong"`
}

// Agent is an agent by name, with the rewards of its replies.
type Agent struct {
	Agent string `json:"agent"`
	// Source is what shows the name of its first reply, an attribution.Source.
	Source string `json:"agent_source"`
	// Attempts is how many attempts have a reply of it. All means below are over these
	// attempts, apart from those that could not be graded again.
	Attempts int `json:"attempts"`
	Replies  int `json:"replies"` // of all attempts
	// Earned is the mean reward of the attempts themselves.
	Earned *evaluation.Estimate `json:"earned"`
	First  *Reply               `json:"first,omitempty"` // nil if replies can't be graded by themselves
	Last   *Reply               `json:"last,omitempty"`
}

// Reply has the mean rewards of a reply that each attempt has, as if it were the result.
type Reply struct {
	AsWritten *evaluation.Estimate `json:"as_written"`
	// WithoutProse is without a code fence and the prose around the answer; nil if the
	// grader has no rule for that.
	WithoutProse *evaluation.Estimate `json:"without_prose,omitempty"`
}
