package trial

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/trace"
)

// refusals lists refused calls and rewards by code, and what to do.
func (v *verdict) refusals() {
	counts, messages := map[string]int{}, map[string]string{}
	for _, a := range v.Attempts {
		for _, f := range a.Refusals {
			counts[f.Code] += f.Count
			messages[f.Code] = cmp.Or(messages[f.Code], f.Message)
		}
	}
	for _, code := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}) {
		what := "calls"
		reward := trace.Refusal{Code: code}.OfReward()
		if reward {
			what = "rewards"
		}
		text := fmt.Sprintf("%d %s were refused: %s (%s)", counts[code], what, code, firstLine(messages[code]))
		if advice := v.advice(code); advice != "" {
			text += "; " + advice
		}
		if v.calls == 0 && !reward {
			v.Problems = append(v.Problems, text)
		} else {
			v.Warnings = append(v.Warnings, text)
		}
	}
}

// advice says how to avoid that calls are refused with a code.
func (v *verdict) advice(code string) string {
	switch code {
	case "call_limit":
		return fmt.Sprintf("raise agent.limits.calls (%d)", v.spec.Agent.Limits.Calls)
	case "token_limit":
		return fmt.Sprintf("raise agent.limits.tokens (%d)", v.spec.Agent.Limits.Tokens)
	case "context_length_exceeded":
		if v.spec.Model.Base == spec.BaseTiny {
			return fmt.Sprintf("raise model.context (%d), or shorten the prompts", v.spec.Model.Context)
		}
		return "shorten the prompts, or start from a model with a longer context"
	case "wrong_key", "invalid_api_key":
		return "send the key that the agent is given (OPENAI_API_KEY)"
	case "unknown_url":
		return "append the endpoint's path to the base URL as it is given (OPENAI_BASE_URL)"
	}
	return ""
}

// tools warns of tools that the model never sees.
func (v *verdict) tools() {
	hidden, offered := 0, ""
	for attempt, c := range v.eachCall() {
		if c.HiddenTools {
			hidden++
			offered = attempt
		}
	}
	switch {
	case hidden == 0:
	case v.spec.Model.Codec != dialog.CompactName:
		v.problem("%d of %s offer tools that the model never sees, for example in %s: the chat template leaves them out; "+
			"give one that writes `tools` as model.template", hidden, readable.Count(v.calls, "call"), offered)
	default:
		v.warning("codec compact writes no list of tools where a single one is offered (%d of %s): the model knows its tool from a warm start or not at all", hidden, readable.Count(v.calls, "call"))
	}
}

// replies warns of problems that all replies share.
func (v *verdict) replies() {
	cut, unread, problem := 0, 0, ""
	for _, c := range v.eachCall() {
		if c.Finish == "length" {
			cut++
		}
		if c.Problem != "" {
			unread++
			problem = cmp.Or(problem, c.Problem)
		}
	}
	switch of := v.spec.Credit.Truncated; {
	case cut == 0 || cut == v.calls || of == spec.TruncatedTrain:
	case of == spec.TruncatedMask:
		v.warning("%d of %d replies were cut off, and credit.truncated: mask leaves them out of training; raise sampling.max_tokens (%d) if these are too many", cut, v.calls, v.spec.Sampling.MaxTokens)
	default:
		v.warning("%d of %d replies were cut off, and credit.truncated: fail lets their attempts fail; raise sampling.max_tokens (%d) if these are too many", cut, v.calls, v.spec.Sampling.MaxTokens)
	}
	if v.calls > 0 && cut == v.calls {
		v.warning("all %d replies were cut off: raise sampling.max_tokens (%d), or start from a model that ends its replies", v.calls, v.spec.Sampling.MaxTokens)
	}
	if v.calls > 0 && unread == v.calls {
		v.warning("none of the %d replies could be read, for example: %s; look at model.tool_parser, or use a warm start", v.calls, firstLine(problem))
	}
}

// results warns of output that is not graded. An agent that gives
// itself its reward may print what it likes.
func (v *verdict) results() {
	lines, attempts := 0, 0
	for _, a := range v.Attempts {
		if a.LinesBefore > 0 {
			lines, attempts = lines+a.LinesBefore, attempts+1
		}
	}
	if attempts > 0 && v.spec.Grader.Type != spec.GraderAgent {
		v.warning("%s of output in %s %s not graded: the result is only the last line; print the result as one line, at the end",
			readable.Count(lines, "line"), readable.Count(attempts, "attempt"), readable.IsOrAre(lines))
	}
}
