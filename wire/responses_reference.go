package wire

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// Recall completes the dialog of a request that refers to items of earlier replies.
// The function says what the reply of an id such as resp_1 was, if there is one to
// refer to. The error is a *Failure.
func (r *Request) Recall(said func(reply string) (dialog.Message, bool)) error {
	if len(r.Refers) == 0 {
		return nil
	}
	err := r.read(func(id string) (item, bool) {
		stem, of := itemID(id)
		if of == nil {
			return item{}, false
		}
		m, known := said(Responses.ReplyID(stem))
		if !known {
			return item{}, false
		}
		return of(m)
	})
	if err == nil {
		r.Refers = nil
	}
	return err
}

// itemID takes the id of an item apart: the id that all parts of its reply share,
// and how the item is told from what the reply said.
func itemID(id string) (stem string, of func(dialog.Message) (item, bool)) {
	kind, stem, _ := strings.Cut(id, "_")
	switch kind {
	case "msg":
		return stem, func(m dialog.Message) (item, bool) {
			return item{Type: "message", Role: "assistant", Content: marshal(m.Content)}, true
		}
	case "rs":
		return stem, func(m dialog.Message) (item, bool) {
			return item{Type: "reasoning", Content: marshal([]reasoningText{{"reasoning_text", m.Reasoning}})}, m.Reasoning != ""
		}
	case "fc":
		last := max(strings.LastIndexByte(stem, '_'), 0)
		k, err := strconv.Atoi(strings.TrimPrefix(stem[last:], "_"))
		return stem[:last], func(m dialog.Message) (item, bool) {
			if err != nil || k < 0 || k >= len(m.ToolCalls) {
				return item{}, false
			}
			call := m.ToolCalls[k]
			return item{Type: "function_call", CallID: call.ID, Name: call.Function.Name, Arguments: json.RawMessage(marshal(call.Function.Arguments))}, true
		}
	}
	return "", nil
}
