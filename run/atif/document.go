package atif

import (
	"encoding/json"
	"time"
)

// Version is the version of the format that documents have.
const Version = "ATIF-v1.7"

// Trajectory is a document: an attempt, or one conversation of an attempt.
type Trajectory struct {
	SchemaVersion string `json:"schema_version"`
	// SessionID is the address of the attempt, also in the trajectories of its conversations.
	SessionID string `json:"session_id"`
	// TrajectoryID is unique in a run.
	TrajectoryID string       `json:"trajectory_id"`
	Agent        Agent        `json:"agent"`
	Steps        []Step       `json:"steps"`
	Final        FinalMetrics `json:"final_metrics"`
	Extra        *Attempt     `json:"extra,omitempty"` // nil in the trajectory of a conversation
	Subagents    []Trajectory `json:"subagent_trajectories,omitempty"`
}

// Agent names what acted, and the policy that it acted with.
type Agent struct {
	Name string `json:"name"`
	// Version is the number of the policy's version.
	Version   string `json:"version"`
	ModelName string `json:"model_name"`
	Tools     []Tool `json:"tool_definitions,omitempty"`
	// Extra says how the name of the agent of a conversation is known.
	Extra *AgentExtra `json:"extra,omitempty"`
}

// AgentExtra is what the format has no field for.
type AgentExtra struct {
	// Agent is the name that Source, an attribution.Source, gives the agent.
	Agent  string `json:"agent"`
	Source string `json:"agent_source"`
}

// Tool is a tool that was offered, in the form of OpenAI's chat completions.
type Tool struct {
	Type     string   `json:"type"` // "function"
	Function Function `json:"function"`
}

// Function describes a tool.
type Function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// The sources of a step.
const (
	fromSystem = "system"
	fromUser   = "user"
	fromAgent  = "agent"
)

// Step is a message of a dialog, or a model call.
type Step struct {
	ID          int          `json:"step_id"` // from 1
	Timestamp   string       `json:"timestamp,omitempty"`
	Source      string       `json:"source"`
	ModelName   string       `json:"model_name,omitempty"` // if it is not that of the trajectory
	Message     string       `json:"message"`
	Reasoning   string       `json:"reasoning_content,omitempty"`
	ToolCalls   []ToolCall   `json:"tool_calls,omitempty"`
	Observation *Observation `json:"observation,omitempty"`
	Metrics     *Metrics     `json:"metrics,omitempty"`
	// Copied is true for the messages up to the last one of an assistant with which a
	// conversation begins: no call of this trajectory made them.
	Copied   bool  `json:"is_copied_context,omitempty"`
	LLMCalls *int  `json:"llm_call_count,omitempty"` // 1 for a model call
	Extra    *Call `json:"extra,omitempty"`
}

// ToolCall is a call of a tool.
type ToolCall struct {
	ID        string          `json:"tool_call_id"`
	Function  string          `json:"function_name"`
	Arguments json.RawMessage `json:"arguments"` // an object
	Extra     *RawArguments   `json:"extra,omitempty"`
}

// RawArguments are the arguments of a tool call that are no JSON object.
type RawArguments struct {
	Arguments string `json:"arguments"`
}

// Observation holds what tools or agents answered.
type Observation struct {
	Results []Result `json:"results"`
}

// Result is one answer.
type Result struct {
	SourceCallID string `json:"source_call_id,omitempty"`
	Content      string `json:"content"`
	Subagents    []Ref  `json:"subagent_trajectory_ref,omitempty"`
}

// Ref names an embedded trajectory.
type Ref struct {
	TrajectoryID string `json:"trajectory_id"`
}

// Metrics are the tokens of a call.
type Metrics struct {
	PromptTokens     int         `json:"prompt_tokens"`
	CompletionTokens int         `json:"completion_tokens"`
	PromptIDs        []int32     `json:"prompt_token_ids"`
	CompletionIDs    []int32     `json:"completion_token_ids"`
	Logprobs         []float32   `json:"logprobs"`
	Extra            SampledWith `json:"extra"`
}

// SampledWith is what else is needed to compute with log-probabilities.
type SampledWith struct {
	Temperature float64 `json:"temperature"`
	// Forced has a 1 for each token of the completion that had no alternative; absent if
	// every token had one.
	Forced []int32 `json:"forced,omitempty"`
	// Form is the model.Form that restricted the soft-max behind Logprobs; absent if none did.
	Form json.RawMessage `json:"form,omitempty"`
}

// Call is what the record of a call has beyond the fields of the format.
type Call struct {
	Call         int                `json:"call"` // its number in the attempt
	ID           string             `json:"id"`   // of the reply
	API          string             `json:"api"`
	Policy       string             `json:"policy"`
	Version      int                `json:"version"`
	Weights      string             `json:"weights"`
	Server       string             `json:"server,omitempty"`
	Finish       string             `json:"finish"` // "stop", or "length" for a reply that was cut off
	ParseError   string             `json:"parse_error,omitempty"`
	PartlyRead   bool               `json:"partly_read,omitempty"`
	ReplayedFrom int                `json:"replayed_from,omitempty"`
	Rewards      map[string]float64 `json:"rewards,omitempty"`
	// Request is the body of a request of which no messages could be read.
	Request string `json:"request,omitempty"`
}

// Attempt is what the record of an attempt has beyond the fields of the format.
type Attempt struct {
	Run     string `json:"run"`
	Kind    string `json:"kind"`
	Step    int    `json:"step"` // for an evaluation, the number of the version
	Task    int    `json:"task"`
	Sample  int    `json:"sample"`
	Attempt int    `json:"attempt"`
	TaskID  string `json:"task_id"`
	Policy  string `json:"policy"`
	Version int    `json:"version"`

	Outcome string   `json:"outcome"`
	Failure string   `json:"failure,omitempty"`
	Error   string   `json:"error,omitempty"`
	Result  string   `json:"result"`
	Verdict string   `json:"verdict,omitempty"` // what the grader says of the result
	Reward  *float64 `json:"reward"`            // the final one; null before a grader gave it
	// Rewards are the other rewards of the attempt by name.
	Rewards map[string]float64 `json:"rewards,omitempty"`
}

// FinalMetrics sums up a trajectory and those that are embedded in it.
type FinalMetrics struct {
	PromptTokens     int `json:"total_prompt_tokens"`
	CompletionTokens int `json:"total_completion_tokens"`
	Steps            int `json:"total_steps"` // of the trajectory itself
}

func timestamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
}
