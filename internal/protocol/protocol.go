// Package protocol has what the forwarder beside an agent and a gateway say to each
// other on top of the APIs of models: headers, codes of refusals, and which errors are
// faults of the machinery.
//
// The forwarder names each request of its agent ([ExchangeHeader]) and counts how often
// it asked ([RetryHeader]), so that a gateway answers the same. The gateway marks its
// own faults ([FaultHeader]), which the forwarder hides by asking again, and gives
// every refusal a code ([CodeHeader]), of which some end the attempt.
package protocol

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

// The headers. Those that begin with HeaderPrefix are between forwarder and gateway:
// what an agent sends under such a name is dropped.
const (
	HeaderPrefix = "X-Fulgurite-"
	// FaultHeader on a reply of status 5xx says that the gateway, not the request, is
	// at fault: the request may be asked again as it is, and the attempt must not be
	// blamed.
	FaultHeader = HeaderPrefix + "Fault"
	// CodeHeader holds the code of a failure, also for APIs whose errors have no place
	// for it.
	CodeHeader = HeaderPrefix + "Code"
	// RetryHeader on a request counts how often the forwarder has asked the same
	// before without getting a whole reply.
	RetryHeader = HeaderPrefix + "Retry"
	// ExchangeHeader on a request names the one request of the agent that is asked
	// for, however often: two that are alike have two names.
	ExchangeHeader = HeaderPrefix + "Exchange"
	// InstanceHeader on what a server of tools answers a probe with says which process
	// it is.
	InstanceHeader = HeaderPrefix + "Instance"
	// SDKRetryHeader is sent by the common SDKs when they ask again. The forwarder
	// adds its own count to it.
	SDKRetryHeader = "X-Stainless-Retry-Count"
)

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
)

// IsFault reports whether a reply speaks for a fault of the machinery: one that the
// gateway declares, or one of a proxy that could not reach it.
func IsFault(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return response.StatusCode >= 500 && response.Header.Get(FaultHeader) != ""
}

// CodeOf is the code of a failure, from the headers of its reply or else from its body
// or event. It is empty if there is none.
func CodeOf(header http.Header, body []byte) string {
	var failure struct {
		Code  string // of an event of a stream
		Error struct{ Code string }
	}
	_ = json.Unmarshal(body, &failure) // what isn't JSON has no code
	return cmp.Or(header.Get(CodeHeader), failure.Error.Code, failure.Code)
}

// PresentedKey is the API key in the headers of OpenAI's or Anthropic's SDKs.
func PresentedKey(r *http.Request) string {
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(key)
	}
	return r.Header.Get("X-Api-Key")
}
