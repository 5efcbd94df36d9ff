package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// ResolveItems completes the dialog of a request that refers to items of earlier replies.
// said returns the reply with an id such as resp_1, if there is one to refer to. The
// error is a *Failure.
func (r *Request) ResolveItems(said func(reply string) (dialog.Message, bool)) error {
	if len(r.References) == 0 {
		return nil
	}
	err := r.readItems(func(id string) (item, bool) {
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
		r.References = nil
	}
	return err
}

// itemID splits the id of an item into the id that all parts of its reply share, and the
// function that makes the item from the reply.
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

// Deleted returns the body that confirms that the response with an id, such as resp_1,
// was deleted.
func Deleted(id string) []byte {
	return marshal(struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Deleted bool   `json:"deleted"`
	}{id, "response", true})
}

// InputItems returns the body that lists the input of a request of Responses, the last
// item first. Items that came without an id get one derived from the reply's.
func (r *Request) InputItems(id string) []byte {
	var asked struct {
		Input json.RawMessage `json:"input"`
	}
	_ = json.Unmarshal(r.Body, &asked) // a request that was made by hand has none
	items := []map[string]any{}
	if json.Unmarshal(asked.Input, &items) != nil {
		items = []map[string]any{{"role": "user", "content": stringOf(asked.Input)}}
	}
	ids := make([]string, len(items))
	for i, item := range items {
		ids[i] = keptItem(item, fmt.Sprintf("item_%s_%d", id, i))
	}
	slices.Reverse(items)
	slices.Reverse(ids)
	list := struct {
		Object  string           `json:"object"`
		Data    []map[string]any `json:"data"`
		FirstID *string          `json:"first_id"`
		LastID  *string          `json:"last_id"`
		HasMore bool             `json:"has_more"`
	}{Object: "list", Data: items}
	if len(ids) > 0 {
		list.FirstID, list.LastID = &ids[0], &ids[len(ids)-1]
	}
	return marshal(list)
}

// keptItem completes an item for being listed, and returns its id.
func keptItem(item map[string]any, id string) string {
	if given, ok := item["id"].(string); ok && given != "" {
		id = given
	}
	item["id"] = id
	if _, ok := item["type"]; !ok {
		item["type"] = "message"
	}
	if text, ok := item["content"].(string); ok && item["type"] == "message" {
		kind := "input_text"
		if item["role"] == "assistant" {
			kind = "output_text"
		}
		item["content"] = []any{map[string]any{"type": kind, "text": text}}
	}
	if _, ok := item["status"]; !ok {
		item["status"] = "completed"
	}
	return id
}
