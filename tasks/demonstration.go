package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/tasks/arithmetic"
	"github.com/fulgurite/fulgurite/tasks/shuffle"
	"github.com/fulgurite/fulgurite/tasks/stream"
)

// Demonstrations are the dialogs of a warm start.
type Demonstrations interface {
	// Batch returns the dialogs of one update, counted from 0. There are size of them,
	// and they are the same each time.
	Batch(update, size int) []dialog.Dialog
}

// OpenDemonstrations reads the demonstrations of a source, which is written as in a spec:
// "arithmetic" for those of the built-in calculator, or the path of a file (see
// ReadDemonstrations). The seed orders each epoch of a file differently. updates is the
// number of updates of the warm start.
func OpenDemonstrations(source string, seed uint64, updates int) (Demonstrations, error) {
	s, err := spec.ParseSource(source)
	switch {
	case err != nil:
		return nil, err
	case s.Split != "":
		return nil, fmt.Errorf("demonstrations %q: write %q, they come from the train split", source, s.Family)
	case s.Family != "" && s.Path != "":
		return nil, fmt.Errorf("demonstrations %q: %s has tasks, not dialogs", source, s.Family)
	case s.Family != "":
		return arithmetic.Demonstrations{Seed: seed, Updates: updates}, nil
	}
	dialogs, err := OpenDialogs(s.Path)
	if err != nil {
		return nil, err
	}
	return repeated{dialogs, shuffle.Key(demonstrationDomain, seed)}, nil
}

// OpenDialogs reads the dialogs of a file, in their order.
func OpenDialogs(path string) ([]dialog.Dialog, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open demonstrations: %w", err)
	}
	defer f.Close()
	r, array, err := contentsOf(f)
	if err == nil && array {
		err = fmt.Errorf("read %s: it is one JSON array: write one dialog, a JSON object, on each line", path)
	}
	if err != nil {
		return nil, err
	}
	return ReadDemonstrations(r, path)
}

// demonstrationDomain separates the order of demonstrations from the order of tasks.
const demonstrationDomain = 0x64656d6f // "demo"

// repeated repeats dialogs endlessly.
type repeated struct {
	dialogs []dialog.Dialog
	seed    uint64
}

func (r repeated) Batch(update, size int) []dialog.Dialog {
	batch := make([]dialog.Dialog, size)
	for i := range batch {
		index, _ := stream.At(r.seed, len(r.dialogs), update*size+i)
		batch[i] = r.dialogs[index]
	}
	return batch
}

// ReadDemonstrations reads dialogs in the format of OpenAI's fine-tuning files, one JSON
// object per line:
//
//	{"messages": [{"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}], "tools": […]}
//
// Content is text, null, or a list of text parts. An assistant message of weight 0 is not
// learned. Keys that have no effect here (name, refusal, parallel_tool_calls) are
// skipped. Other unknown keys are errors, and so are dialogs that a model can't learn
// from. The errors are those of ReadJSONL.
func ReadDemonstrations(r io.Reader, name string) ([]dialog.Dialog, error) {
	return readLines(r, name, "dialogs", func(text []byte, _ int) (dialog.Dialog, error) {
		var w wireDialog
		if err := decodeStrict(text, &w); err != nil {
			return dialog.Dialog{}, err
		}
		return w.dialog()
	})
}

// The wire types have the fields of the file. A field that may have several types, or
// that is skipped, is a json.RawMessage.
type wireDialog struct {
	Messages          []wireMessage   `json:"messages"`
	Tools             []wireTool      `json:"tools"`
	ParallelToolCalls json.RawMessage `json:"parallel_tool_calls"`
}

type wireMessage struct {
	Role       dialog.Role       `json:"role"`
	Content    json.RawMessage   `json:"content"`
	Name       json.RawMessage   `json:"name"`
	Refusal    json.RawMessage   `json:"refusal"`
	ToolCalls  []dialog.ToolCall `json:"tool_calls"`
	ToolCallID string            `json:"tool_call_id"`
	Weight     *int              `json:"weight"`
}

type wireTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      json.RawMessage `json:"strict"`
	} `json:"function"`
}

func decodeStrict(text []byte, value any) error {
	if err := decode(text, new(json.RawMessage)); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(value)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("%s can't be a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("a JSON %s where an object is expected", kind.Value)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "json: "))
}

func (w wireDialog) dialog() (dialog.Dialog, error) {
	var d dialog.Dialog
	for i, t := range w.Tools {
		if t.Type != "function" || t.Function.Name == "" {
			return d, fmt.Errorf(`tools[%d]: want {"type": "function", "function": {"name": …}}`, i)
		}
		d.Tools = append(d.Tools, dialog.Tool{Name: t.Function.Name, Description: t.Function.Description, Parameters: t.Function.Parameters})
	}
	learned := false
	for i, m := range w.Messages {
		message, err := m.message(d.Tools)
		if err != nil {
			return d, fmt.Errorf("messages[%d]: %w", i, err)
		}
		d.Messages = append(d.Messages, message)
		learned = learned || m.Role == dialog.Assistant && (m.Weight == nil || *m.Weight != 0)
	}
	if !learned {
		return d, errors.New("no assistant message to learn from")
	}
	return d, nil
}

func (m wireMessage) message(tools []dialog.Tool) (dialog.Message, error) {
	out := dialog.Message{Role: m.Role, ToolCalls: m.ToolCalls, ToolCallID: m.ToolCallID, Weight: m.Weight}
	roles := []dialog.Role{dialog.System, "developer", dialog.User, dialog.Assistant, dialog.ToolReply}
	switch {
	case !slices.Contains(roles, m.Role):
		return out, fmt.Errorf("unknown role %q", m.Role)
	case m.Role != dialog.Assistant && len(m.ToolCalls) > 0:
		return out, fmt.Errorf("tool_calls of role %q: only the assistant calls", m.Role)
	case m.Role == dialog.ToolReply && m.ToolCallID == "":
		return out, errors.New("a tool's reply without tool_call_id")
	case m.Weight != nil && *m.Weight != 0 && *m.Weight != 1:
		return out, fmt.Errorf("weight %d: want 0 or 1", *m.Weight)
	}
	for k, call := range m.ToolCalls {
		if !slices.ContainsFunc(tools, func(t dialog.Tool) bool { return t.Name == call.Function.Name }) {
			return out, fmt.Errorf("tool_calls[%d]: the tool %q is not in tools", k, call.Function.Name)
		}
		if !json.Valid([]byte(call.Function.Arguments)) {
			return out, fmt.Errorf("tool_calls[%d]: arguments are not JSON", k)
		}
	}
	var err error
	out.Content, err = content(m.Content)
	return out, err
}

// content returns the text of a message, which is a string, null, or parts of type text.
func content(raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil {
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", errors.New("content is neither text nor a list of parts")
	}
	for _, p := range parts {
		if p.Type != "text" {
			return "", fmt.Errorf("content part of type %q: only text can be learned", p.Type)
		}
		text += p.Text
	}
	return text, nil
}
