package samples

import (
	"slices"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
	"github.com/fulgurite/fulgurite/wire"
)

// Line is a message of an attempt.
type Line struct {
	dialog.Message
	Call    int  // Seq of the call that brought or sampled it
	Sampled bool // by the policy
}

// Dialog is the conversation of the calls of an attempt, in order: of each request what the
// call before did not have, and each reply. A request that can't be read is left out.
func Dialog(calls []trace.Exchange) []Line {
	var out []Line
	requests := attribution.Requests(calls)
	bySeq := map[int]*wire.Request{}
	for i, call := range calls {
		bySeq[call.Seq] = requests[i]
		for _, m := range fresh(call, bySeq) {
			out = append(out, Line{Message: m, Call: call.Seq})
		}
		for _, m := range attribution.Replies(call.Response) {
			out = append(out, Line{Message: m, Call: call.Seq, Sampled: true})
		}
	}
	return out
}

// fresh are the messages of a request that the one it continues did not have.
func fresh(call trace.Exchange, bySeq map[int]*wire.Request) []dialog.Message {
	r := bySeq[call.Seq]
	if r == nil {
		return nil
	}
	base := call.Parent
	if base < 0 {
		base = call.Seq - 1
	}
	messages := r.Dialog
	if before := bySeq[base]; before != nil {
		messages = messages[dialog.Shared(before.Dialog, r.Dialog):]
	}
	if r.Text != "" {
		messages = append(slices.Clone(messages), dialog.Message{Role: dialog.User, Content: r.Text})
	}
	return messages
}

// Common is with how many lines all dialogs begin alike. Dialogs without a line are left
// out; of one alone it is what was said before its first reply.
func Common(dialogs [][]Line) int {
	dialogs = slices.DeleteFunc(slices.Clone(dialogs), func(d []Line) bool { return len(d) == 0 })
	if len(dialogs) == 0 {
		return 0
	}
	first := dialogs[0]
	if len(dialogs) == 1 {
		if i := slices.IndexFunc(first, func(l Line) bool { return l.Sampled }); i >= 0 {
			return i
		}
		return len(first)
	}
	n := len(first)
	for _, d := range dialogs[1:] {
		n = min(n, len(d))
		for i := range n {
			if !alike(first[i], d[i]) {
				n = i
				break
			}
		}
	}
	return n
}

// alike reports whether two lines say the same. The ids of tool calls are drawn anew in each
// attempt and don't count.
func alike(a, b Line) bool {
	return a.Sampled == b.Sampled && a.Role == b.Role && a.Name == b.Name && a.Content == b.Content && a.Reasoning == b.Reasoning &&
		slices.EqualFunc(a.ToolCalls, b.ToolCalls, func(x, y dialog.ToolCall) bool { return x.Function == y.Function })
}
