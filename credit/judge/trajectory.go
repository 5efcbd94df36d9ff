package judge

import (
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Of makes a judge's Attempt from the record of an attempt. codec is the codec of its
// policy. Spans are left out, since a span that arrives later would change the prompt.
func Of(t trace.Attempt, history []trace.Exchange, task tasks.Task, reward float64, codec dialog.Codec) Attempt {
	a := Attempt{
		Address: t.Address, Task: truncate(task.Input), Expected: truncate(task.Answer), Calls: make([]Call, len(history)),
		Result: truncate(t.Result), Failure: t.Failure, Reward: reward,
	}
	requests := attribution.Requests(history)
	callers := attribution.OfRequests(history, requests, nil, t.Terms.Ignore)
	for i, c := range history {
		a.Calls[i] = Call{
			Number: i + 1, Agent: callers[i].Agent, Asked: asked(c, requests[i], codec),
			Answered: answered(c, requests[i], codec), Problem: truncate(c.ParseError),
		}
	}
	return a
}

// asked returns the new messages of a request.
func asked(c trace.Exchange, r *wire.Request, codec dialog.Codec) []Message {
	if r == nil || len(r.Dialog) == 0 {
		text := codec.Text(c.Prompt)
		if r != nil && r.Text != "" {
			text = r.Text
		}
		return []Message{{Text: truncate(text)}}
	}
	all := r.Dialog
	if c.Parent >= 0 {
		all = dialog.Latest(all)
	}
	out := make([]Message, len(all))
	for i, m := range all {
		out[i] = message(m)
	}
	return out
}

// answered returns the reply of the policy. It parses the tokens, which are the same for
// every API.
func answered(c trace.Exchange, r *wire.Request, codec dialog.Codec) Message {
	var tools []dialog.Tool
	if r != nil {
		tools = r.Tools
	}
	m, _ := codec.Parse(c.Completion, tools, func(int) string { return "" })
	out := message(m)
	out.Role = ""
	return out
}

func message(m dialog.Message) Message {
	out := Message{Role: string(m.Role), Thought: truncate(m.Reasoning), Text: truncate(m.Content)}
	for _, t := range m.ToolCalls {
		out.Tools = append(out.Tools, Tool{t.Function.Name, truncate(t.Function.Arguments)})
	}
	return out
}
