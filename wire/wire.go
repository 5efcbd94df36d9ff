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
	"encoding/json"
	"time"

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
