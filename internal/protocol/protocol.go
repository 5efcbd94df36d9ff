// Package protocol defines what a gateway and the forwarder next to an agent exchange in
// addition to the APIs of models: headers, codes of refusals, and which errors are faults
// of the infrastructure.
//
// The forwarder names each request of its agent ([RequestNameHeader]) and counts how often
// it has sent it ([RetryHeader]), so that a gateway gives the same answer. The gateway
// marks its own faults ([FaultHeader]), which the forwarder hides by sending the request
// again. It also gives every refusal a code ([CodeHeader]); some codes end the attempt.
package protocol

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/wire"
)

// The headers. Those that begin with HeaderPrefix are only between the gateway and its
// clients, such as the forwarder: the forwarder drops such headers of an agent.
const (
	HeaderPrefix = "X-Fulgurite-"
	// FaultHeader on a reply with status 5xx means that the gateway is at fault, not the
	// request: the same request may be sent again, and the attempt must not be blamed.
	FaultHeader = HeaderPrefix + "Fault"
	// CodeHeader holds the code of a failure, also for APIs whose errors have no place
	// for it.
	CodeHeader = HeaderPrefix + "Code"
	// RetryHeader on a request counts how often the forwarder has already sent the same
	// request without getting a complete reply.
	RetryHeader = HeaderPrefix + "Retry"
	// RequestNameHeader on a request identifies one request of the agent, however often it
	// is sent. Two equal requests of the agent have different identifiers.
	RequestNameHeader = HeaderPrefix + "Exchange"
	// InstanceHeader on a tool server's answer to a probe identifies the process that
	// answers.
	InstanceHeader = HeaderPrefix + "Instance"
	// PromptsHeader on a request for a served version says which prompts replace its texts:
	// NoPrompts, or the promoted ones without this header. On the reply it has their number.
	PromptsHeader = HeaderPrefix + "Prompts"
	// ReplacedHeader on the reply has the number of texts that prompts replaced.
	ReplacedHeader = HeaderPrefix + "Replaced"
	// VersionHeader on the reply of a served version names the version, such as "demo@12".
	VersionHeader = HeaderPrefix + "Version"
	// ConversationHeader on a request for a served version names the conversation that it
	// belongs to. On the reply it has that name, or the conversation's address.
	ConversationHeader = HeaderPrefix + "Conversation"
	// ConsentHeader on a request for a served version says whether its client consents to
	// being recorded: "true" or "false".
	ConsentHeader = HeaderPrefix + "Consent"
	// UserHeader on a request for a served version says who its user is. Only a hash of it
	// is recorded.
	UserHeader = HeaderPrefix + "User"
	// SDKRetryHeader is sent by the common SDKs when they ask again. The forwarder
	// adds its own count to it.
	SDKRetryHeader = "X-Stainless-Retry-Count"
)

// NoPrompts is the value of PromptsHeader for a request that stays as it is.
const NoPrompts = "none"

// The codes of failures that both sides know.
const (
	CodeInfrastructure = "infrastructure" // a fault of the gateway; the value of FaultHeader, too
	CodeFenced         = "attempt_fenced" // the attempt is over, or a later one has begun
	CodeCallLimit      = "call_limit"     // the attempt has made all of its calls
	CodeTokenLimit     = "token_limit"    // the attempt has sampled all of its tokens
	CodeInvalidKey     = "invalid_api_key"
	CodeTooLarge       = "request_too_large"
	CodeTimeout        = "request_timeout" // the request did not come whole in time
	CodeNotFound       = "not_found"
	CodeUnsampled      = "not_sampled" // no sampler can answer with the run's settings; the run ends
)

// IsFault reports whether a reply shows a fault of the infrastructure: one that the
// gateway declares, or one of a proxy that could not reach the gateway.
func IsFault(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return response.StatusCode >= 500 && response.Header.Get(FaultHeader) != ""
}

// CodeOf returns the code of a failure from the headers of its reply, or else from its
// body or event. It returns "" if there is none.
func CodeOf(header http.Header, body []byte) string {
	var failure struct {
		Code  string // of an event of a stream
		Error struct{ Code string }
	}
	_ = json.Unmarshal(body, &failure) // a body that is not JSON has no code
	return cmp.Or(header.Get(CodeHeader), failure.Error.Code, failure.Code)
}

// PresentedKey returns the API key from the headers of OpenAI's or Anthropic's SDKs.
func PresentedKey(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	return r.Header.Get("X-Api-Key")
}

// Versions returns the versions of HTTP that servers of agents answer: HTTP/1.1, and
// HTTP/2 without encryption for clients that begin with it (prior knowledge).
func Versions() *http.Protocols {
	v := new(http.Protocols)
	v.SetHTTP1(true)
	v.SetUnencryptedHTTP2(true)
	return v
}

// EventKind is the kind of a server-sent event in a streamed reply.
type EventKind int

// The kinds.
const (
	ReplyEvent EventKind = iota // part of the reply
	Keepalive                   // only a sign of life
	ErrorEvent                  // tells of an error
)

// KindOf returns the kind of an event. Keepalives are comments and, in Anthropic's API,
// the event ping. A part of a reply whose error is null is not an error.
func KindOf(event []byte) EventKind {
	comment := true
	for line := range bytes.Lines(event) {
		line = bytes.TrimRight(line, "\r\n")
		if bytes.Equal(line, []byte("event: ping")) {
			return Keepalive
		}
		comment = comment && (len(line) == 0 || line[0] == ':')
	}
	if comment {
		return Keepalive
	}
	if bytes.Contains(event, []byte(`"error"`)) {
		if _, failed := wire.ReadFailure(EventData(event)); failed {
			return ErrorEvent
		}
	}
	return ReplyEvent
}

// EventData returns the data of an event.
func EventData(event []byte) []byte {
	var data []byte
	for line := range bytes.Lines(event) {
		if rest, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(data, rest...)
		}
	}
	return bytes.TrimSpace(data)
}

// BlamesAgent reports whether an ErrorEvent blames the agent's request. Any other error
// is a fault of the infrastructure.
func BlamesAgent(event []byte) bool {
	words, _ := wire.ReadFailure(EventData(event))
	return slices.ContainsFunc(words, func(word string) bool {
		switch word {
		case CodeFenced, CodeCallLimit, CodeTokenLimit:
			return true
		}
		return wire.BlamesRequest(word)
	})
}

// WithoutEmptySegments returns a URL without the empty segments of its path, as clients
// make them that join "…/v1/" and "/chat/completions". The URL itself does not change.
func WithoutEmptySegments(u *url.URL) *url.URL {
	if !strings.Contains(u.Path, "//") {
		return u
	}
	squeezed := *u
	squeezed.Path, squeezed.RawPath = squeeze(u.Path), squeeze(u.RawPath)
	return &squeezed
}

func squeeze(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	return path
}
