package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
)

// content returns the text of a message. raw is a string, null, or a list of parts of the
// given kinds, whose texts are joined without a separator.
func content(raw json.RawMessage, field string, kinds ...string) (string, error) {
	if !given(raw) {
		return "", nil
	}
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return "", Invalid(field, "content is neither text nor a list of parts")
	}
	var all strings.Builder
	for i, part := range parts {
		text, err := partText(part, at(field, i), kinds)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

func partText(raw json.RawMessage, field string, kinds []string) (string, error) {
	var plain string
	if json.Unmarshal(raw, &plain) == nil && raw[0] == '"' {
		return plain, nil
	}
	var part struct{ Type, Text, Refusal string }
	if json.Unmarshal(raw, &part) != nil {
		return "", Invalid(field, "the part is not an object with a type and text")
	}
	if !slices.Contains(kinds, part.Type) {
		return "", textOnly(field, part.Type)
	}
	return part.Text + part.Refusal, nil
}

// textOnly refuses a part of a message that is no text.
func textOnly(field, kind string) *Failure {
	if kind == "" {
		return Invalid(field+".type", "the part has no type: the model reads parts of type \"text\"")
	}
	return Invalid(field+".type", "parts of type %q are not supported: the model reads text only", kind)
}

// unknownRole refuses a message with a role that its API does not have, or without one.
func unknownRole(field, role string) *Failure {
	if role == "" {
		return Invalid(field+".role", "the message has no role")
	}
	return Invalid(field+".role", "role %q is not supported", role)
}

// chatTool is a tool of Chat.
type chatTool struct {
	Type     string      `json:"type"`
	Function dialog.Tool `json:"function"`
}

// readTools reads the tools of Chat.
func (r *Request) readTools(tools []chatTool) error {
	for i, t := range tools {
		field := at("tools", i)
		if t.Type != "function" && t.Type != "" {
			return Invalid(field+".type", "tools of type %q are not supported", t.Type)
		}
		if err := r.addTool(field+".function", t.Function); err != nil {
			return err
		}
	}
	return nil
}

// readFunctions reads the functions that Chat had before it had tools.
func (r *Request) readFunctions(functions []dialog.Tool) error {
	for i, f := range functions {
		if err := r.addTool(at("functions", i), f); err != nil {
			return err
		}
		// A message holds one call of a function.
		r.functions, r.Serial = true, true
	}
	return nil
}

func (r *Request) addTool(field string, t dialog.Tool) error {
	if t.Name == "" {
		return Invalid(field+".name", "the tool has no name")
	}
	r.Tools = append(r.Tools, t)
	return nil
}

// openChoice is a tool choice that is an object: one function by name, or a list of
// functions. Chat nests the fields that Responses has flat.
type openChoice struct {
	Type string `json:"type"`
	namedTool
	Allowed *allowedTools `json:"allowed_tools"`
	allowedTools
}

type namedTool struct {
	Name     string `json:"name"`
	Function struct {
		Name string `json:"name"`
	} `json:"function"`
}

func (n namedTool) name() string {
	if n.Name != "" {
		return n.Name
	}
	return n.Function.Name
}

type allowedTools struct {
	Mode  string      `json:"mode"`
	Tools []namedTool `json:"tools"`
}

// readToolChoice reads a tool choice of Chat or Responses.
func (r *Request) readToolChoice(raw json.RawMessage) error {
	const field = "tool_choice"
	switch word := stringOf(raw); {
	case !given(raw) || word == "auto":
		return nil
	case word == "none":
		r.Choice.None = true
		return nil
	case word == "required":
		return r.requireCall(field)
	case word != "":
		return Invalid(field, `tool_choice is %q: want "auto", "none", "required" or a tool on offer`, word)
	}
	var choice openChoice
	if json.Unmarshal(raw, &choice) != nil {
		return Invalid(field, "tool_choice is neither a word nor an object that names a tool")
	}
	switch choice.Type {
	case "function":
		return r.requireCall(field, choice.name())
	case "allowed_tools":
		allowed := choice.allowedTools
		if choice.Allowed != nil {
			allowed = *choice.Allowed
		}
		return r.allowTools(field, allowed)
	}
	if choice.Type == "" {
		return Invalid(field, `tool_choice has no type: want "auto", "none", "required" or {"type": "function"} with the name of a tool on offer`)
	}
	return Invalid(field, "tool_choice of type %q is not supported: the tools here are functions", choice.Type)
}

// allowTools narrows the choice to a list of tools.
func (r *Request) allowTools(field string, allowed allowedTools) error {
	names := []string{}
	for _, t := range allowed.Tools {
		names = append(names, t.name())
	}
	if err := r.checkOffered(field, names); err != nil {
		return err
	}
	switch {
	case allowed.Mode == "required" && len(names) > 0:
		r.Choice = ToolChoice{Required: true, Names: names}
	case allowed.Mode == "required":
		return Invalid(field, "tool_choice requires a call, but allows no tool")
	case len(names) == 0:
		r.Choice = ToolChoice{None: true}
	default:
		r.Choice = ToolChoice{Names: names}
	}
	return nil
}

// requireCall asks for a call: of one of the tools named, or of any.
func (r *Request) requireCall(field string, names ...string) error {
	if len(r.Tools) == 0 {
		return Invalid(field, "tool_choice requires a call, but no tool is offered")
	}
	if err := r.checkOffered(field, names); err != nil {
		return err
	}
	r.Choice = ToolChoice{Required: true, Names: names}
	return nil
}

func (r *Request) checkOffered(field string, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(r.Tools, func(t dialog.Tool) bool { return t.Name == name }) {
			return Invalid(field, "tool_choice names the tool %q, which is not offered", name)
		}
	}
	return nil
}
