// Package atif writes the attempts of a run as trajectories in ATIF 1.7, the Agent
// Trajectory Interchange Format of Harbor: one JSON document for each attempt, with the
// token ids and log-probabilities of each model call.
//
// A step of a document is a message, or one model call. An attempt whose calls form one
// conversation is one trajectory. In any other attempt, such as one of several agents,
// each conversation is an embedded trajectory under the name of its agent, and a step of
// the outer trajectory refers to each, in order.
//
// The package reads what is on record and computes nothing again. It is not a reader of
// the format. Attempts are read one by one, so that a run of any length fits into memory.
// Every document has the form that Harbor's validator accepts; docs/formats.md says what
// is where.
package atif

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/wire"
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

// turn is a model call with what its request says for the first time.
type turn struct {
	record.Exchange
	request *wire.Request // nil if it can't be read
	// fresh are the messages after those of the call before and its reply.
	fresh []dialog.Message
	// text is the new part of a prompt that is no dialog.
	text  string
	reply dialog.Message
}

// conversation is a list of calls of an agent in which each continues the one before.
type conversation struct {
	agent attribution.Name
	turns []turn
}

// conversations divides the calls of an attempt, in order of their first calls. A call
// belongs to the conversation of its agent whose last call it continues. Of several calls
// that continue the same one, the first belongs to its conversation, and each of the
// others begins another.
func conversations(history []record.Exchange, requests []*wire.Request, names []attribution.Name) []conversation {
	var all []conversation
	for i, c := range history {
		t := turn{Exchange: c, request: requests[i]}
		if replies := attribution.Replies(c.Response); len(replies) > 0 {
			t.reply = replies[0]
		}
		if !join(all, names[i], t) {
			if t.request != nil {
				t.fresh, t.text = t.request.Dialog, t.request.Text
			}
			all = append(all, conversation{names[i], []turn{t}})
		}
	}
	return all
}

// join adds a call to the newest conversation that it continues, if there is one.
func join(all []conversation, agent attribution.Name, t turn) bool {
	for i := len(all) - 1; i >= 0; i-- {
		c := &all[i]
		// An agent that is known by its instructions and tools alone may offer other tools.
		unnamed := c.agent.Source == attribution.Instructions && agent.Source == attribution.Instructions
		if c.agent.Agent != agent.Agent && !unnamed || !t.continues(c.turns[len(c.turns)-1]) {
			continue
		}
		c.turns = append(c.turns, t)
		return true
	}
	return false
}

// continues reports whether the request of a call consists of that of another call, the
// reply to it, and more. It then sets what is new.
func (t *turn) continues(before turn) bool {
	r, b := t.request, before.request
	switch {
	case r == nil || b == nil || r.API != b.API:
		return false
	case r.Previous != "":
		_, rest := dialog.Instructions(r.Dialog) // each request gives them again
		t.fresh = rest
		return r.Previous == before.ID
	case len(r.Dialog) == 0:
		rest, ok := strings.CutPrefix(r.Text, b.Text+before.reply.Content)
		t.text = rest
		return ok && b.Text != ""
	}
	shared := dialog.Shared(b.Dialog, r.Dialog)
	if shared <= len(b.Dialog) || t.Parent != before.Seq && !same(r.Dialog[shared-1], before.reply) {
		return false
	}
	t.fresh = r.Dialog[shared:]
	return true
}

// same reports whether a message of a request repeats a reply.
func same(m, reply dialog.Message) bool {
	if strings.TrimSpace(m.Content) != strings.TrimSpace(reply.Content) || len(m.ToolCalls) != len(reply.ToolCalls) {
		return false
	}
	for i, c := range m.ToolCalls {
		if c.Function.Name != reply.ToolCalls[i].Function.Name {
			return false
		}
	}
	return true
}

// Store is the part of a store that trajectories are read from.
type Store interface {
	Run(ctx context.Context, name string) (record.Run, error)
	Trials(ctx context.Context, run, policy string) ([]record.Trial, error)
	Attempt(ctx context.Context, address record.Address) (record.Attempt, error)
	Exchanges(ctx context.Context, address record.Address) ([]record.Exchange, error)
	Rewards(ctx context.Context, address record.Address) ([]record.Reward, error)
	Spans(ctx context.Context, address record.Address) ([]record.Span, error)
}

// Blobs keeps content under its digest.
type Blobs interface {
	Get(ctx context.Context, digest string) ([]byte, error)
}

// Source is a policy of a run on record.
type Source struct {
	Store       Store
	Blobs       Blobs
	Run, Policy string
}

// Trajectories calls yield with each attempt of the run that counts, of every split, by
// split, step, task and sample. An attempt counts if it ended, whether or not its agent
// failed, and if no later attempt took its place.
func (s Source) Trajectories(ctx context.Context, yield func(Trajectory) error) error {
	run, err := s.Store.Run(ctx, s.Run)
	if err != nil {
		return fmt.Errorf("read run %s: %w", s.Run, err)
	}
	trials, err := s.Store.Trials(ctx, s.Run, s.Policy)
	if err != nil {
		return err
	}
	questions := questions{blobs: s.Blobs, splits: run.Splits, known: map[record.Kind]map[string]string{}}
	for i, t := range trials {
		replaced := i+1 < len(trials) && trials[i+1].RolloutID == t.RolloutID
		if replaced || t.Outcome != record.OutcomeCompleted && t.Outcome != record.AgentFailed {
			continue
		}
		question, err := questions.of(ctx, t)
		if err != nil {
			return err
		}
		one, err := s.trajectory(ctx, t.Address, question)
		if err != nil {
			return fmt.Errorf("attempt %s: %w", t.Address, err)
		}
		if err := yield(one); err != nil {
			return err
		}
	}
	return nil
}

// Conversations calls yield with each of the attempts at addresses that has a call. They are
// conversations with served versions, which have no task.
func (s Source) Conversations(ctx context.Context, addresses []record.Address, yield func(Trajectory) error) error {
	for _, address := range addresses {
		one, err := s.trajectory(ctx, address, address.String())
		if errors.Is(err, record.ErrNotFound) || err == nil && len(one.Steps) == 0 {
			continue // it was removed meanwhile
		}
		if err != nil {
			return fmt.Errorf("conversation %s: %w", address, err)
		}
		if err := yield(one); err != nil {
			return err
		}
	}
	return nil
}

// trajectory reads an attempt. question is the input of its task.
func (s Source) trajectory(ctx context.Context, address record.Address, question string) (Trajectory, error) {
	a, err := s.Store.Attempt(ctx, address)
	if err != nil {
		return Trajectory{}, err
	}
	history, err := s.Store.Exchanges(ctx, address)
	if err != nil {
		return Trajectory{}, err
	}
	spans, err := s.Store.Spans(ctx, address)
	if err != nil {
		return Trajectory{}, fmt.Errorf("read its spans: %w", err)
	}
	rewards, err := s.Store.Rewards(ctx, address)
	if err != nil {
		return Trajectory{}, fmt.Errorf("read its rewards: %w", err)
	}
	w := writer{attempt: a, rewards: map[string]map[string]float64{}}
	for _, r := range rewards {
		if w.rewards[r.CallID] == nil {
			w.rewards[r.CallID] = map[string]float64{}
		}
		if r.CallID != "" || r.Name != credit.Final {
			w.rewards[r.CallID][r.Name] = r.Value
		}
	}
	requests := attribution.Requests(history)
	names := attribution.OfRequests(history, requests, spans, a.Terms.Ignore)
	return w.document(conversations(history, requests, names), question)
}

// questions has the inputs of tasks. It reads a split when it needs it.
type questions struct {
	blobs  Blobs
	splits map[record.Kind]record.Split
	known  map[record.Kind]map[string]string // by split and task
}

// of returns the input of the task of an attempt, or the task's id if its split is not on
// record.
func (q questions) of(ctx context.Context, t record.Trial) (string, error) {
	split := t.Kind.Split()
	if q.known[split] == nil {
		q.known[split] = map[string]string{}
		if digest := q.splits[split].Digest; digest != "" {
			data, err := q.blobs.Get(ctx, digest)
			if err != nil {
				return "", fmt.Errorf("read the tasks of split %s: %w", split, err)
			}
			all, err := tasks.Decode(data)
			if err != nil {
				return "", fmt.Errorf("decode the tasks of split %s: %w", split, err)
			}
			for _, one := range all {
				q.known[split][one.ID] = one.Input
			}
		}
	}
	if input, ok := q.known[split][t.TaskID]; ok {
		return input, nil
	}
	return t.TaskID, nil
}
