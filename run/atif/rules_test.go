package atif_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// object is a JSON object of a document.
type object = map[string]any

// fields are the fields of each kind of object in ATIF 1.7, and those that it must have.
// The objects named extra may have any fields.
func fields() map[string]struct{ all, required string } {
	return map[string]struct{ all, required string }{
		"trajectory": {"schema_version session_id trajectory_id agent steps notes final_metrics continued_trajectory_ref extra subagent_trajectories", "schema_version agent steps"},
		"agent":      {"name version model_name tool_definitions extra", "name version"},
		"final":      {"total_prompt_tokens total_completion_tokens total_cached_tokens total_cost_usd total_steps extra", ""},
		"step": {"step_id timestamp source model_name reasoning_effort message reasoning_content tool_calls observation metrics is_copied_context llm_call_count extra",
			"step_id source message"},
		"tool call":   {"tool_call_id function_name arguments extra", "tool_call_id function_name arguments"},
		"observation": {"results", "results"},
		"result":      {"source_call_id content subagent_trajectory_ref extra", ""},
		"reference":   {"trajectory_id trajectory_path session_id extra", ""},
		"metrics":     {"prompt_tokens completion_tokens cached_tokens cost_usd prompt_token_ids completion_token_ids logprobs extra", ""},
	}
}

// checker collects what is wrong with a document, by the rules of ATIF 1.7.
type checker struct{ faults []string }

// violations returns what is wrong with a document.
func violations(document object) []string {
	var c checker
	c.trajectory("", document)
	return c.faults
}

func (c *checker) fault(at, text string, args ...any) {
	c.faults = append(c.faults, at+": "+fmt.Sprintf(text, args...))
}

// known checks the names of an object's fields.
func (c *checker) known(at, kind string, o object) {
	f := fields()[kind]
	all := strings.Fields(f.all)
	for _, name := range slices.Sorted(maps.Keys(o)) {
		switch _, isObject := o[name].(object); {
		case !slices.Contains(all, name):
			c.fault(at, "%s has no field %s", kind, name)
		case name == "extra" && !isObject:
			c.fault(at, "extra is no object")
		}
	}
	for _, name := range strings.Fields(f.required) {
		if o[name] == nil {
			c.fault(at, "%s lacks %s", kind, name)
		}
	}
}

// each calls check with each object of a list.
func each(o object, list string, check func(i int, one object)) {
	all, _ := o[list].([]any)
	for i, one := range all {
		entry, _ := one.(object)
		check(i, entry)
	}
}

func (c *checker) trajectory(at string, t object) {
	c.known(at, "trajectory", t)
	if t["schema_version"] != "ATIF-v1.7" {
		c.fault(at, "schema_version is %v", t["schema_version"])
	}
	agent, _ := t["agent"].(object)
	c.known(at+"/agent", "agent", agent)
	each(agent, "tool_definitions", func(i int, tool object) {
		if function, ok := tool["function"].(object); tool["type"] != "function" || !ok || function["name"] == nil {
			c.fault(at, "tool definition %d is none of OpenAI's", i)
		}
	})
	if final, ok := t["final_metrics"].(object); ok {
		c.known(at+"/final_metrics", "final", final)
	}
	embedded := map[any]bool{}
	each(t, "subagent_trajectories", func(i int, one object) {
		id := one["trajectory_id"]
		if id == nil || embedded[id] {
			c.fault(at, "subagent trajectory %d has no id of its own", i)
		}
		embedded[id] = true
		c.trajectory(fmt.Sprintf("%s/subagent_trajectories/%d", at, i), one)
	})
	if steps, _ := t["steps"].([]any); len(steps) == 0 {
		c.fault(at, "it has no steps")
	}
	each(t, "steps", func(i int, step object) {
		place := fmt.Sprintf("%s/steps/%d", at, i)
		if step["step_id"] != float64(i+1) {
			c.fault(place, "step_id is %v", step["step_id"])
		}
		c.step(place, step, embedded)
	})
}

func (c *checker) step(at string, s object, embedded map[any]bool) {
	c.known(at, "step", s)
	if source, _ := s["source"].(string); !slices.Contains([]string{"system", "user", "agent"}, source) {
		c.fault(at, "source is %v", s["source"])
	}
	if s["source"] != "agent" {
		for _, name := range []string{"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"} {
			if s[name] != nil {
				c.fault(at, "%s belongs to a step of the agent", name)
			}
		}
	}
	if s["llm_call_count"] == float64(0) && (s["metrics"] != nil || s["reasoning_content"] != nil) {
		c.fault(at, "metrics without a model call")
	}
	if _, isText := s["message"].(string); !isText {
		c.fault(at, "message is no text")
	}
	if at1, ok := s["timestamp"].(string); ok {
		if _, err := time.Parse(time.RFC3339, at1); err != nil {
			c.fault(at, "timestamp is %s", at1)
		}
	}
	c.metrics(at, s)
	calls := map[any]bool{}
	each(s, "tool_calls", func(_ int, call object) {
		c.known(at+"/tool_calls", "tool call", call)
		if _, ok := call["arguments"].(object); !ok {
			c.fault(at, "arguments are no object")
		}
		calls[call["tool_call_id"]] = true
	})
	observation, ok := s["observation"].(object)
	if !ok {
		return
	}
	c.known(at+"/observation", "observation", observation)
	each(observation, "results", func(_ int, result object) {
		c.known(at+"/observation", "result", result)
		if id := result["source_call_id"]; id != nil && !calls[id] {
			c.fault(at, "no tool call %v", id)
		}
		each(result, "subagent_trajectory_ref", func(_ int, ref object) {
			c.known(at+"/observation", "reference", ref)
			if !embedded[ref["trajectory_id"]] {
				c.fault(at, "no subagent trajectory %v", ref["trajectory_id"])
			}
		})
	})
}

// metrics checks that lists of tokens have the lengths that the numbers say.
func (c *checker) metrics(at string, s object) {
	m, ok := s["metrics"].(object)
	if !ok {
		return
	}
	c.known(at+"/metrics", "metrics", m)
	for list, number := range map[string]string{"prompt_token_ids": "prompt_tokens", "completion_token_ids": "completion_tokens", "logprobs": "completion_tokens"} {
		if all, ok := m[list].([]any); !ok || float64(len(all)) != m[number] {
			c.fault(at, "%s has another length than %s", list, number)
		}
	}
}

// valid returns a small document without a fault.
func valid() object {
	metrics := object{"prompt_tokens": 1.0, "prompt_token_ids": []any{3.0}, "completion_tokens": 1.0, "completion_token_ids": []any{4.0}, "logprobs": []any{-1.0}}
	call := object{"tool_call_id": "a", "function_name": "f", "arguments": object{}}
	return object{"schema_version": "ATIF-v1.7", "agent": object{"name": "n", "version": "1"}, "steps": []any{
		object{"step_id": 1.0, "source": "user", "message": "go", "timestamp": "2026-01-02T03:04:05.000001Z"},
		object{"step_id": 2.0, "source": "agent", "message": "", "metrics": metrics, "tool_calls": []any{call},
			"observation": object{"results": []any{object{"source_call_id": "a", "content": "b"}}}},
	}}
}

func step(d object, i int) object { return d["steps"].([]any)[i].(object) }

func TestTheRulesOfTheFormatAreHeld(t *testing.T) {
	t.Parallel()
	require.Empty(t, violations(valid()))
	for name, spoil := range map[string]func(object){
		"another version":           func(d object) { d["schema_version"] = "ATIF-v1.6" },
		"an unknown field":          func(d object) { d["reward"] = 1.0 },
		"no agent":                  func(d object) { delete(d, "agent") },
		"no steps":                  func(d object) { d["steps"] = []any{} },
		"a gap":                     func(d object) { step(d, 1)["step_id"] = 3.0 },
		"a tool's own step":         func(d object) { step(d, 0)["source"] = "tool" },
		"metrics of a user":         func(d object) { step(d, 0)["metrics"] = object{} },
		"a time":                    func(d object) { step(d, 0)["timestamp"] = "now" },
		"no message":                func(d object) { delete(step(d, 0), "message") },
		"an answer to no call":      func(d object) { step(d, 1)["tool_calls"] = []any{} },
		"arguments as text":         func(d object) { step(d, 1)["tool_calls"].([]any)[0].(object)["arguments"] = "{}" },
		"fewer probabilities":       func(d object) { step(d, 1)["metrics"].(object)["logprobs"] = []any{} },
		"a deterministic reply":     func(d object) { step(d, 1)["llm_call_count"] = 0.0 },
		"a subagent without an id":  func(d object) { d["subagent_trajectories"] = []any{valid()} },
		"a subagent that is faulty": func(d object) { d["subagent_trajectories"] = []any{object{"trajectory_id": "x"}} },
	} {
		d := valid()
		spoil(d)
		require.NotEmpty(t, violations(d), name)
	}
}
