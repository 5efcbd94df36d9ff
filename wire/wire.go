// Package wire reads and writes the HTTP APIs by which agents call models: OpenAI's
// chat completions, completions and responses, and Anthropic's messages.
//
// The package reads all of them as one [Request] and answers them with one [Reply], so
// that other packages need not deal with their differences. It is only about bytes: it
// samples nothing, keeps nothing and opens no connection.
//
// Guarantees: any body is decoded into a request, or refused with a [Failure] that names
// the field at fault; nothing panics. A reply has the full shape that clients of its API
// expect, and arguments of tool calls are JSON objects. A stream has the content of the
// body of the same reply, in however many pieces it is written.
package wire

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	jsonv2 "encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fulgurite/fulgurite/dialog"
)

// API is one of the protocols.
type API string

// The APIs.
const (
	Chat        API = "chat"        // POST /v1/chat/completions
	Completions API = "completions" // POST /v1/completions
	Responses   API = "responses"   // POST /v1/responses
	Messages    API = "messages"    // POST /v1/messages
)

// Request is a request for a reply of the model, whichever API it came by. Fields
// that no reply depends on are not in it.
type Request struct {
	API   API
	Model string
	// Dialog is all that was said, instructions first. It continues the dialog of
	// the reply that Previous names, whose instructions do not carry over.
	Dialog []dialog.Message
	// Text and Tokens are the prompt of Completions, which has no dialog: one of
	// them is given.
	Text   string
	Tokens []int32

	Tools  []dialog.Tool
	Choice ToolChoice
	// Serial forbids more than one tool call in a reply.
	Serial bool

	MaxTokens   int // 0 if not given
	Temperature *float64
	TopP        *float64
	Seed        *int64
	Stop        []string
	N           int // replies to sample, at least 1
	Logprobs    bool
	TopLogprobs int // alternatives wanted for each token
	Format      Format

	Stream bool
	// Usage asks for token counts at the end of a stream (Chat and Completions).
	Usage bool
	// Previous is the id of the reply that this request continues (Responses).
	Previous string
	// References are the ids of items of earlier replies that the input names instead of
	// repeating them (Responses). The dialog lacks them until ResolveItems has put them
	// in.
	References []string
	// Prefill is the field of the message that the reply is asked to continue, as if the
	// model had begun it; empty if the reply is a message of its own. See CheckPrefill.
	Prefill string
	// Forget asks not to keep the reply for later requests (Responses).
	Forget bool

	// Variables are variables of the chat template that the client gives, as JSON.
	Variables map[string]json.RawMessage

	// Body is the request as it came. Replies of Responses repeat parts of it.
	Body json.RawMessage

	functions  bool   // the tools came as functions, the older form, and calls are returned so
	oddSeed    string // a seed that is no integer, see CheckSampling
	items      []json.RawMessage
	instructed int // messages of the dialog that do not come from items
}

// ToolChoice says which tools a reply may or must call. Its zero value leaves it to
// the model.
type ToolChoice struct {
	None     bool
	Required bool
	// Names are the tools that may be called; nil means all that are offered. Required
	// says that one of them has to be called.
	Names []string
}

// Format is the form of a reply's text.
type Format struct {
	// Schema is the JSON Schema that the text has to satisfy, `{}` for any JSON
	// object; nil for free text.
	Schema json.RawMessage
	Name   string
	Strict bool
}

// Reply is the reply of a model.
type Reply struct {
	// ID is shared by all ids in the reply; each API puts its own prefix before it,
	// see API.ReplyID.
	ID      string
	Created time.Time
	// Model is the name that the request asked for, repeated.
	Model        string
	PromptTokens int
	Choices      []Choice // Request.N of them
}

// Choice is one of the replies to a request.
type Choice struct {
	// Message holds content, reasoning and tool calls, which have their ids.
	Message dialog.Message
	// Finish is why it ended.
	Finish Finish
	// Cut says that a tool call after those of the message was cut off.
	Cut bool
	// Stopped is the stop text that ended it, if one did.
	Stopped string
	// Tokens is the number of tokens sampled.
	Tokens int
	// Logprobs of the tokens of the content, if they were asked for.
	Logprobs []Token
}

// Finish is why a reply ended.
type Finish string

// The reasons.
const (
	Stop      Finish = "stop"
	Length    Finish = "length"
	ToolCalls Finish = "tool_calls"
)

// Token is a sampled token as log-probabilities show it.
type Token struct {
	Text    string
	Bytes   []byte
	Logprob float32
}

// Decode reads a request of an API as its clients write it. Fields that it does not
// know, and those that no reply depends on, are accepted and ignored. The error is a
// *Failure.
func Decode(api API, body []byte) (*Request, error) {
	r := &Request{API: api, Body: slices.Clone(body), N: 1}
	decode := r.decoder()
	if decode == nil {
		return nil, &Failure{Status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf("there is no API %q", api)}
	}
	if err := decode(body); err != nil {
		return nil, err
	}
	return r, nil
}

// decoder returns the function that decodes the API's requests; nil if there is no such
// API.
func (r *Request) decoder() func(body []byte) error {
	switch r.API {
	case Chat:
		return r.decodeChat
	case Completions:
		return r.decodeCompletions
	case Responses:
		return r.decodeResponses
	case Messages:
		return r.decodeMessages
	}
	return nil
}

// checkText refuses a body that is not UTF-8.
func checkText(body []byte) error {
	if utf8.Valid(body) {
		return nil
	}
	return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not UTF-8"}
}

// Unmarshal decodes a JSON object into v, which is empty. The error names the field that
// does not fit or that is given twice. Only a body that can't be decoded at once is
// decoded again to find that field.
func Unmarshal(body []byte, v any) error {
	if err := checkText(body); err != nil {
		return err
	}
	if jsonv2.Unmarshal(body, v, json.DefaultOptionsV1(), jsontext.AllowDuplicateNames(false)) == nil {
		return nil
	}
	reflect.ValueOf(v).Elem().SetZero()
	err := json.Unmarshal(body, v)
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		return unambiguous(body)
	case errors.As(err, &mistyped) && mistyped.Field != "":
		field := fieldAt(mistyped.Field, ".")
		return Invalid(field, "%s: want %s, got %s", field, wanted(mistyped.Type), mistyped.Value)
	case errors.As(err, &mistyped):
		return &Failure{Status: http.StatusBadRequest, Code: "invalid_body", Message: "the request's body is not a JSON object"}
	default:
		return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not JSON: " + err.Error(), Cause: err}
	}
}

// unambiguous refuses objects that give a name twice: readers differ in which of
// the two they take.
func unambiguous(body []byte) error {
	// JavaScript may cut a text within a surrogate pair. The half that remains is read as
	// U+FFFD.
	_, err := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowInvalidUTF8(true)).ReadValue()
	var at *jsontext.SyntacticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &at) && errors.Is(err, jsontext.ErrDuplicateName):
		field := fieldAt(strings.TrimPrefix(string(at.JSONPointer), "/"), "/")
		return Invalid(field, "%s is given twice in one object", field)
	default:
		return &Failure{Status: http.StatusBadRequest, Code: "invalid_json", Message: "the request's body is not JSON: " + err.Error(), Cause: err}
	}
}

// fieldAt writes a path as messages[0].role.
func fieldAt(path, separator string) string {
	var field strings.Builder
	for i, name := range strings.Split(path, separator) {
		_, err := strconv.Atoi(name)
		switch {
		case err == nil && i > 0:
			field.WriteString("[" + name + "]")
			continue
		case i > 0:
			field.WriteByte('.')
		}
		field.WriteString(name)
	}
	return field.String()
}

// wanted names the JSON type that a Go type reads.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	default:
		return "a number"
	}
}

// given reports whether a field is there and not null.
func given(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null"
}

// isObject reports whether raw is a JSON object.
func isObject(raw []byte) bool {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(raw)
}

// stringOf returns the string that raw holds, "" if it holds none.
func stringOf(raw json.RawMessage) string {
	var s string
	if given(raw) {
		_ = json.Unmarshal(raw, &s) // anything else is no string
	}
	return s
}

// owner is the name of the owner of all models.
const owner = "fulgurite"

// openModel is the JSON of a model in OpenAI's APIs.
type openModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"` // "model"
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

// messagesModel is the JSON of a model in Messages.
type messagesModel struct {
	Type        string    `json:"type"` // "model"
	ID          string    `json:"id"`
	DisplayName string    `json:"display_name"`
	CreatedAt   time.Time `json:"created_at"`
}

func openModelOf(name string) openModel { return openModel{ID: name, Object: "model", OwnedBy: owner} }

// messagesModelOf describes a model with the time 0 of Unix, as openModelOf does.
func messagesModelOf(name string) messagesModel {
	return messagesModel{"model", name, name, time.Unix(0, 0).UTC()}
}

// Model returns the body that describes a model.
func (api API) Model(name string) []byte {
	if api == Messages {
		return marshal(messagesModelOf(name))
	}
	return marshal(openModelOf(name))
}

// Models returns the body that lists models, all of them on one page.
func (api API) Models(names []string) []byte {
	if api != Messages {
		all := make([]openModel, len(names))
		for i, name := range names {
			all[i] = openModelOf(name)
		}
		return marshal(struct {
			Object string      `json:"object"`
			Data   []openModel `json:"data"`
		}{"list", all})
	}
	all := make([]messagesModel, len(names))
	for i, name := range names {
		all[i] = messagesModelOf(name)
	}
	first, last := "", ""
	if len(names) > 0 {
		first, last = names[0], names[len(names)-1]
	}
	return marshal(struct {
		Data    []messagesModel `json:"data"`
		HasMore bool            `json:"has_more"`
		FirstID *string         `json:"first_id"`
		LastID  *string         `json:"last_id"`
	}{all, false, nullable(first), nullable(last)})
}
