package atif

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

// writer makes the document of an attempt.
type writer struct {
	attempt record.Attempt
	rewards map[string]map[string]float64 // by id of a call, "" for the attempt, and name
}

// document returns the trajectory of the attempt.
func (w writer) document(all []conversation, question string) (Trajectory, error) {
	id := w.attempt.Address.String()
	var parts []Trajectory
	for i, c := range all {
		one, err := w.conversation(c, fmt.Sprintf("%s/conversation-%d", id, i+1))
		if err != nil {
			return Trajectory{}, err
		}
		parts = append(parts, one)
	}
	var root Trajectory
	if len(parts) == 1 {
		root = parts[0]
		if all[0].agent.Source == attribution.Instructions { // a digest, which has nobody to be told apart from
			root.Agent.Name = w.attempt.Run
		}
	} else {
		root = w.outer(parts, question)
	}
	root.TrajectoryID, root.Extra = id, w.extra()
	return root, nil
}

// outer returns a trajectory in which a step refers to each of the parts.
func (w writer) outer(parts []Trajectory, question string) Trajectory {
	t := w.trajectory()
	t.Agent.Name, t.Subagents = w.attempt.Run, parts
	t.Steps = []Step{{Timestamp: timestamp(w.attempt.Begun), Source: fromUser, Message: question}}
	for _, p := range parts {
		last := p.Steps[len(p.Steps)-1] // a model call, as every conversation ends with one
		t.Steps = append(t.Steps, Step{
			Timestamp: p.Steps[0].Timestamp, Source: fromSystem, Message: p.Agent.Name,
			Observation: &Observation{[]Result{{Content: last.Message, Subagents: []Ref{{p.TrajectoryID}}}}},
		})
		t.Final.PromptTokens += p.Final.PromptTokens
		t.Final.CompletionTokens += p.Final.CompletionTokens
	}
	return t.numbered()
}

// trajectory returns a trajectory without steps.
func (w writer) trajectory() Trajectory {
	terms := w.attempt.Terms
	return Trajectory{
		SchemaVersion: Version, SessionID: w.attempt.Address.String(),
		Agent: Agent{Version: strconv.Itoa(terms.Version), ModelName: w.modelName(terms.Policy, terms.Version)},
	}
}

func (w writer) modelName(policy string, version int) string {
	return model.VersionID{Run: w.attempt.Run, Policy: policy, Number: version}.String()
}

// conversation returns the trajectory of calls that continue each other.
func (w writer) conversation(c conversation, id string) (Trajectory, error) {
	t := w.trajectory()
	t.TrajectoryID, t.Agent.Name = id, cmp.Or(c.agent.Agent, w.attempt.Run)
	if c.agent.Agent != "" {
		t.Agent.Extra = &AgentExtra{Agent: c.agent.Agent, Source: string(c.agent.Source)}
	}
	offered := map[string]bool{}
	for i, one := range c.turns {
		at := timestamp(one.Started)
		t.say(one, at, i == 0)
		step, err := w.call(one, at)
		if err != nil {
			return t, err
		}
		if step.ModelName == t.Agent.ModelName {
			step.ModelName = ""
		}
		t.Steps = append(t.Steps, step)
		t.Final.PromptTokens += step.Metrics.PromptTokens
		t.Final.CompletionTokens += step.Metrics.CompletionTokens
		if one.request == nil {
			continue
		}
		for _, tool := range one.request.Tools {
			if !offered[tool.Name] {
				offered[tool.Name] = true
				t.Agent.Tools = append(t.Agent.Tools, Tool{"function", Function{tool.Name, tool.Description, tool.Parameters}})
			}
		}
	}
	return t.numbered(), nil
}

// say adds the steps of the messages that a request says for the first time.
func (t *Trajectory) say(one turn, at string, first bool) {
	if one.request == nil || len(one.fresh) == 0 {
		if one.text != "" || first { // a prompt of tokens has no text
			t.Steps = append(t.Steps, Step{Timestamp: at, Source: fromUser, Message: one.text})
		}
		return
	}
	copied := -1 // the last message that is not new to the agent
	if first {
		for i, m := range one.fresh {
			if m.Role == dialog.Assistant {
				copied = i
			}
		}
	}
	for i, m := range one.fresh {
		if m.Role == dialog.ToolReply {
			t.observe(m, at)
			continue
		}
		step := Step{Timestamp: at, Source: fromUser, Message: m.Content, Copied: i <= copied}
		switch m.Role {
		case dialog.System:
			step.Source = fromSystem
		case dialog.Assistant:
			// A call of this trajectory did not make it, whoever did.
			step.Source, step.Copied, step.Reasoning, step.ToolCalls = fromAgent, true, m.Reasoning, toolCalls(m, fmt.Sprintf("given_%d", len(t.Steps)))
		}
		t.Steps = append(t.Steps, step)
	}
}

// observe adds the result of a tool to the newest step of the agent.
func (t *Trajectory) observe(m dialog.Message, at string) {
	result := Result{SourceCallID: m.ToolCallID, Content: m.Content}
	for i := len(t.Steps) - 1; i >= 0; i-- {
		s := &t.Steps[i]
		if s.Source != fromAgent {
			continue
		}
		if !slices.ContainsFunc(s.ToolCalls, func(c ToolCall) bool { return c.ID == m.ToolCallID }) {
			result.SourceCallID = "" // it has to name a call of the same step
		}
		if s.Observation == nil {
			s.Observation = &Observation{}
		}
		s.Observation.Results = append(s.Observation.Results, result)
		return
	}
	result.SourceCallID = ""
	t.Steps = append(t.Steps, Step{Timestamp: at, Source: fromSystem, Observation: &Observation{[]Result{result}}})
}

// call returns the step of a model call.
func (w writer) call(one turn, at string) (Step, error) {
	c, calls := one.Exchange, 1
	extra := &Call{
		Call: c.Seq, ID: c.ID, API: cmp.Or(c.API, "chat"), Policy: c.Policy, Version: c.Version, Weights: c.Weights, Server: c.Server,
		Finish: c.Finish, ParseError: c.ParseError, PartlyRead: c.PartlyRead, ReplayedFrom: c.ReplayedFrom, Rewards: w.rewards[c.ID],
	}
	if one.request == nil {
		extra.Request = string(c.Request)
	}
	metrics := &Metrics{
		PromptTokens: len(c.Prompt), CompletionTokens: len(c.Completion),
		PromptIDs: listed(c.Prompt), CompletionIDs: listed(c.Completion), Logprobs: listed(c.Logprobs), Extra: SampledWith{Temperature: c.Temperature},
	}
	if slices.Contains(c.Untrained, true) {
		for _, forced := range c.Untrained {
			metrics.Extra.Forced = append(metrics.Extra.Forced, map[bool]int32{true: 1}[forced])
		}
	}
	if len(c.Form) > 0 {
		var form model.Form
		if err := json.Unmarshal(c.Form, &form); err != nil {
			return Step{}, fmt.Errorf("form of call %s: %w", c.ID, err)
		}
		if form.Masks() {
			metrics.Extra.Form = c.Form
		}
	}
	return Step{
		Timestamp: at, Source: fromAgent, ModelName: w.modelName(c.Policy, c.Version), Message: one.reply.Content, Reasoning: one.reply.Reasoning,
		ToolCalls: toolCalls(one.reply, fmt.Sprintf("call_%d", c.Seq)), Metrics: metrics, LLMCalls: &calls, Extra: extra,
	}, nil
}

// toolCalls returns the tool calls of a message. One without an id gets one that begins
// with prefix.
func toolCalls(m dialog.Message, prefix string) []ToolCall {
	var out []ToolCall
	for i, c := range m.ToolCalls {
		one := ToolCall{ID: cmp.Or(c.ID, fmt.Sprintf("%s_%d", prefix, i)), Function: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)}
		var object map[string]json.RawMessage
		if text := bytes.TrimSpace(one.Arguments); json.Unmarshal(text, &object) != nil || object == nil {
			one.Arguments = json.RawMessage(`{}`)
			if len(text) > 0 {
				one.Extra = &RawArguments{c.Function.Arguments}
			}
		}
		out = append(out, one)
	}
	return out
}

// numbered numbers the steps.
func (t Trajectory) numbered() Trajectory {
	for i := range t.Steps {
		t.Steps[i].ID = i + 1
	}
	t.Final.Steps = len(t.Steps)
	return t
}

func (w writer) extra() *Attempt {
	a := w.attempt
	return &Attempt{
		Run: a.Run, Kind: string(a.Kind), Step: a.Step, Task: a.Task, Sample: a.Sample, Attempt: a.Attempt, TaskID: a.TaskID,
		Policy: a.Terms.Policy, Version: a.Terms.Version, Outcome: string(a.Outcome), Failure: a.Failure, Error: a.Error, Result: a.Result,
		Verdict: a.Verdict, Reward: a.Reward, Rewards: maps.Clone(w.rewards[""]),
	}
}

// listed turns nil into an empty list, for readers of the JSON.
func listed[T any](values []T) []T { return append([]T{}, values...) }
