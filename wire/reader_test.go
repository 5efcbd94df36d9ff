package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

// object is JSON as a client without types sees it.
type object = map[string]any

// event is a server-sent event.
type event struct {
	name, data string
}

// eventsOf reads a stream as its format demands: comments are skipped, an event is
// a name, where its API gives one, and one line of data.
func eventsOf(t require.TestingT, stream string) []event {
	var all []event
	require.True(t, stream == "" || strings.HasSuffix(stream, "\n\n"), "%q", stream)
	for _, lines := range strings.Split(stream, "\n\n") {
		if lines == "" || strings.HasPrefix(lines, ":") {
			continue
		}
		var e event
		name, data, named := strings.Cut(lines, "\n")
		if !named {
			data = name
		} else {
			e.name = strings.TrimPrefix(name, "event: ")
		}
		require.True(t, strings.HasPrefix(data, "data: "), "%q", data)
		require.NotContains(t, data, "\n")
		e.data = strings.TrimPrefix(data, "data: ")
		all = append(all, e)
	}
	return all
}

func parse(t require.TestingT, text string) object {
	var v object
	require.NoError(t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// bodyOf puts a stream together to the body of a whole reply, as the clients of its
// API do.
func bodyOf(t require.TestingT, api wire.API, stream string) object {
	all := eventsOf(t, stream)
	switch api {
	case wire.Responses:
		return readResponse(t, all)
	case wire.Messages:
		return readMessage(t, all)
	}
	require.Equal(t, event{data: "[DONE]"}, all[len(all)-1])
	return readChunks(t, api, all[:len(all)-1])
}

// readChunks puts a chat completion or a completion together.
func readChunks(t require.TestingT, api wire.API, all []event) object {
	body := object{}
	choices := map[int]object{}
	for _, e := range all {
		require.Empty(t, e.name)
		chunk := parse(t, e.data)
		for _, name := range []string{"id", "object", "created", "model"} {
			require.NotNil(t, chunk[name])
			require.True(t, body[name] == nil || body[name] == chunk[name], "every chunk has the same %s", name)
			body[name] = chunk[name]
		}
		if chunk["usage"] != nil {
			require.Empty(t, chunk["choices"])
			body["usage"] = chunk["usage"]
			continue
		}
		require.Len(t, chunk["choices"], 1)
		piece := chunk["choices"].([]any)[0].(object)
		i := int(piece["index"].(float64))
		if choices[i] == nil {
			choices[i] = object{"index": piece["index"], "logprobs": nil, "finish_reason": nil}
			if api == wire.Chat {
				require.Equal(t, "assistant", piece["delta"].(object)["role"], "a choice begins with its role")
				choices[i]["message"] = object{"refusal": nil}
			}
		}
		require.Nil(t, choices[i]["finish_reason"], "nothing comes after the end")
		if api == wire.Chat {
			grow(choices[i]["message"].(object), piece["delta"].(object))
			delete(piece, "delta")
		}
		grow(choices[i], piece)
	}
	if api == wire.Chat {
		require.Equal(t, "chat.completion.chunk", body["object"])
		body["object"] = "chat.completion"
	}
	list := make([]any, len(choices))
	for i, c := range choices {
		list[i] = c
	}
	body["choices"] = list
	return body
}

// grow adds a piece to what it continues: texts and lists are joined, tool calls by
// their index.
func grow(whole, piece object) {
	for name, v := range piece {
		old := whole[name]
		switch v := v.(type) {
		case nil, float64:
			if old == nil {
				whole[name] = v
			}
		case string:
			before, _ := old.(string)
			whole[name] = before + v
		case []any:
			before, _ := old.([]any)
			for _, element := range v {
				if call, ok := element.(object); ok {
					delete(call, "index")
				}
				before = append(before, element)
			}
			whole[name] = before
		case object:
			if old == nil {
				whole[name] = object{}
			}
			grow(whole[name].(object), v)
		}
	}
}

// readMessage puts a message together.
func readMessage(t require.TestingT, all []event) object {
	var body object
	var blocks []any
	open := false
	for i, e := range all {
		v := parse(t, e.data)
		require.Equal(t, e.name, v["type"])
		require.Equal(t, i == 0, e.name == "message_start")
		require.Equal(t, i == len(all)-1, e.name == "message_stop")
		if v["index"] != nil {
			require.Equal(t, e.name != "content_block_start", open, "one block is open at a time")
			require.InDelta(t, len(blocks)-map[bool]int{true: 1}[open], v["index"], 0)
		}
		switch e.name {
		case "message_start":
			body = v["message"].(object)
			require.Nil(t, body["stop_reason"])
		case "content_block_start":
			open = true
			blocks = append(blocks, v["content_block"])
		case "content_block_delta":
			growBlock(t, blocks[len(blocks)-1].(object), v["delta"].(object))
		case "content_block_stop":
			open = false
			closeBlock(t, blocks[len(blocks)-1].(object))
		case "message_delta":
			require.False(t, open)
			body["stop_reason"], body["stop_sequence"] = v["delta"].(object)["stop_reason"], v["delta"].(object)["stop_sequence"]
			body["usage"].(object)["output_tokens"] = v["usage"].(object)["output_tokens"]
		}
	}
	body["content"] = blocks
	return body
}

func growBlock(t require.TestingT, block, delta object) {
	kinds := map[any]string{"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking", "input_json_delta": "tool_use"}
	require.Equal(t, kinds[delta["type"]], block["type"])
	delete(delta, "type")
	grow(block, delta)
}

func closeBlock(t require.TestingT, block object) {
	if block["type"] == "tool_use" {
		require.Empty(t, block["input"])
		block["input"] = parse(t, block["partial_json"].(string))
		delete(block, "partial_json")
	}
}

// readResponse puts a response together and compares it with the last event.
func readResponse(t require.TestingT, all []event) object {
	var output []any
	for i, e := range all {
		v := parse(t, e.data)
		require.Equal(t, e.name, v["type"])
		require.InDelta(t, i, v["sequence_number"], 0)
		switch e.name {
		case "response.created", "response.in_progress":
			require.Less(t, i, 2)
			require.Equal(t, "in_progress", v["response"].(object)["status"])
			continue
		case "response.completed", "response.incomplete":
			require.Equal(t, len(all)-1, i)
			body := v["response"].(object)
			require.Equal(t, "response."+body["status"].(string), e.name)
			require.Equal(t, output, body["output"], "the items are those told before")
			return body
		case "response.output_item.added":
			output = append(output, v["item"])
		}
		require.InDelta(t, len(output)-1, v["output_index"], 0, "one item is open at a time")
		growItem(t, output[len(output)-1].(object), v)
	}
	require.Fail(t, "the response has no end")
	return nil
}

func growItem(t require.TestingT, item, v object) {
	if id, ok := v["item_id"]; ok {
		require.Equal(t, item["id"], id)
	}
	parts, _ := item["content"].([]any)
	switch v["type"] {
	case "response.content_part.added":
		item["content"] = append(parts, v["part"])
	case "response.output_text.delta", "response.reasoning_text.delta":
		grow(parts[0].(object), object{"text": v["delta"]})
		if v["logprobs"] != nil {
			grow(parts[0].(object), object{"logprobs": v["logprobs"]})
		}
	case "response.output_text.done", "response.reasoning_text.done":
		require.Equal(t, parts[0].(object)["text"], v["text"])
		if v["logprobs"] != nil {
			require.Equal(t, parts[0].(object)["logprobs"], v["logprobs"])
		}
	case "response.content_part.done":
		require.Equal(t, parts[0], v["part"])
	case "response.function_call_arguments.delta":
		grow(item, object{"arguments": v["delta"]})
	case "response.function_call_arguments.done":
		require.Equal(t, item["arguments"], v["arguments"])
		require.Equal(t, item["name"], v["name"])
	case "response.output_item.done":
		require.Equal(t, "in_progress", item["status"])
		item["status"] = v["item"].(object)["status"]
		require.Equal(t, item, v["item"])
	case "response.output_item.added":
	default:
		require.Fail(t, "unknown event", v["type"])
	}
}

func TestTheReaderOfStreamsNoticesWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := decode(t, wire.Chat, `{"stream":true,`+hi+`}`)
	reply := plain("chat", "hello")
	s := r.Open(reply)
	begin := string(s.Begin())
	_ = s.Content(0, "hel", nil)
	end, err := s.End(reply)
	require.NoError(t, err)
	require.NotEqual(t, whole(t, r, reply)["choices"], bodyOf(t, wire.Chat, begin+string(end))["choices"], "a piece is left out")
}
