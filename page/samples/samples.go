// Package samples compares the attempts at one task: it lays each out as one dialog, from
// its first message to its last reply, and finds how many lines all dialogs begin with.
//
// It reads no store. It works on the calls that its caller has read, which need not be
// all.
package samples

import (
	"slices"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// Line is a message of an attempt.
type Line struct {
	dialog.Message
	Call    int  // Seq of the call that brought or sampled it
	Sampled bool // by the policy
}

// Dialog returns the dialog of an attempt's calls, in order: the messages of each request
// that are new since the call that it continues, and each reply. It leaves out requests
// that can't be parsed.
func Dialog(calls []record.Exchange) []Line {
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

// fresh returns the messages of a request that are not in the request which it continues.
func fresh(call record.Exchange, bySeq map[int]*wire.Request) []dialog.Message {
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

// Common returns with how many equal lines all dialogs begin. It ignores dialogs without
// lines. For a single dialog it returns the number of lines before the first reply.
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

// alike reports whether two lines have the same content. It ignores the ids of tool
// calls, because each attempt draws its own.
func alike(a, b Line) bool {
	return a.Sampled == b.Sampled && a.Role == b.Role && a.Name == b.Name && a.Content == b.Content && a.Reasoning == b.Reasoning &&
		slices.EqualFunc(a.ToolCalls, b.ToolCalls, func(x, y dialog.ToolCall) bool { return x.Function == y.Function })
}
