package judge

import (
	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Of reads what a judge is to be told out of the record of an attempt. codec is that
// of its policy. Spans are left out, since they may come in at any time, and so would
// change what is told.
func Of(t trace.Attempt, history []trace.Exchange, task tasks.Task, reward float64, codec dialog.Codec) Attempt {
	a := Attempt{
		Address: t.Address, Task: excerpt(task.Input), Expected: excerpt(task.Answer), Calls: make([]Call, len(history)),
		Result: excerpt(t.Result), Failure: t.Failure, Reward: reward,
	}
	callers := attribution.Of(history, nil, t.Terms.Ignore)
	for i, c := range history {
		request := decode(c)
		a.Calls[i] = Call{
			Number: i + 1, Agent: callers[i].Agent, Asked: asked(c, request, codec),
			Answered: answered(c, request, codec), Problem: excerpt(c.ParseError),
		}
	}
	return a
}

func decode(c trace.Exchange) *wire.Request {
	api := wire.API(c.API)
	if api == "" {
		api = wire.Chat
	}
	r, err := wire.Decode(api, c.Request)
	if err != nil {
		return nil // a request of another release
	}
	return r
}

// asked is what is new in a request.
func asked(c trace.Exchange, r *wire.Request, codec dialog.Codec) []Message {
	if r == nil || len(r.Dialog) == 0 {
		text := codec.Text(c.Prompt)
		if r != nil && r.Text != "" {
			text = r.Text
		}
		return []Message{{Text: excerpt(text)}}
	}
	all := r.Dialog
	if c.Parent >= 0 {
		all = latest(all)
	}
	out := make([]Message, len(all))
	for i, m := range all {
		out[i] = message(m)
	}
	return out
}

// latest is what follows the last answer of the assistant. A dialog that ends with
// one has it go on from there, and is told whole.
func latest(all []dialog.Message) []dialog.Message {
	for i := len(all) - 2; i >= 0; i-- {
		if all[i].Role == dialog.Assistant && all[len(all)-1].Role != dialog.Assistant {
			return all[i+1:]
		}
	}
	return all
}

// answered is what the policy said, read from its tokens, which are the same
// whichever API the call came by.
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
	out := Message{Role: string(m.Role), Thought: excerpt(m.Reasoning), Text: excerpt(m.Content)}
	for _, t := range m.ToolCalls {
		out.Tools = append(out.Tools, Tool{t.Function.Name, excerpt(t.Function.Arguments)})
	}
	return out
}
