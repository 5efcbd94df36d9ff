package wire

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The types of errors of Anthropic's API that blame the request; OpenAI's has the
// first of them.
const (
	invalidRequest = "invalid_request_error"
	authentication = "authentication_error"
	permission     = "permission_error"
	notFound       = "not_found_error"
	tooLarge       = "request_too_large"
	rateLimit      = "rate_limit_error"
)

// codeInvalid is the code of a failure that blames a field.
const codeInvalid = "invalid_value"

// Failure is an error as a client sees it.
type Failure struct {
	Status  int
	Code    string // for programs
	Param   string // the field at fault
	Message string // for people
	Cause   error
}

// Invalid blames a field of the request.
func Invalid(param, format string, args ...any) *Failure {
	return &Failure{Status: http.StatusBadRequest, Code: codeInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

func (f *Failure) Error() string {
	if f.Cause != nil {
		return f.Message + ": " + f.Cause.Error()
	}
	return f.Message
}

func (f *Failure) Unwrap() error { return f.Cause }

// Body returns the failure in the shape that clients of an API read, without the cause.
func (f *Failure) Body(api API) []byte {
	if api == Messages {
		return marshal(f.ofMessages())
	}
	return marshal(f.openBody())
}

// openFailure is the body of a failure in OpenAI's APIs.
type openFailure struct {
	Error openError `json:"error"`
}

func (f *Failure) openBody() openFailure { return openFailure{f.ofOpenAI()} }

type openError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Code    *string `json:"code"`
	Param   *string `json:"param"`
}

func (f *Failure) ofOpenAI() openError {
	kind := invalidRequest
	if f.Status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	return openError{Message: f.Message, Type: kind, Code: nullable(f.Code), Param: nullable(f.Param)}
}

// messagesFailure is the error of Messages, as a body and as an event.
type messagesFailure struct {
	Type  string        `json:"type"` // "error"
	Error messagesError `json:"error"`
}

type messagesError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (f *Failure) ofMessages() messagesFailure {
	// Clients of Messages see only the message, so it names the field.
	message := f.Message
	if f.Param != "" && !names(message, f.Param) {
		message = f.Param + ": " + message
	}
	return messagesFailure{"error", messagesError{kindOf(f.Status), message}}
}

// names reports whether a message contains the field as a separate word.
func names(message, field string) bool {
	for at := 0; ; at++ {
		n := strings.Index(message[at:], field)
		if n < 0 {
			return false
		}
		at += n
		before, _ := utf8.DecodeLastRuneInString(message[:at])
		after, _ := utf8.DecodeRuneInString(message[at+len(field):])
		if !ofName(before) && !ofName(after) {
			return true
		}
	}
}

// ofName reports whether r can be part of a field's name.
func ofName(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// kindOf returns Anthropic's error type for a status.
func kindOf(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return authentication
	case http.StatusForbidden:
		return permission
	case http.StatusNotFound:
		return notFound
	case http.StatusRequestEntityTooLarge:
		return tooLarge
	case http.StatusTooManyRequests:
		return rateLimit
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	case http.StatusGatewayTimeout:
		return "timeout_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return invalidRequest
}

// ReadFailure reads an error in a body or in the data of an event, in the shape of any
// API: OpenAI's {"error": …}, its events {"type": "error", …} and {"type":
// "response.failed", …} of Responses, and Anthropic's {"type": "error", "error": …}.
// words are the types and codes of the error. ok is false for anything else.
func ReadFailure(data []byte) (words []string, ok bool) {
	var f struct {
		Type     string
		Code     any
		Error    *struct{ Type, Code any }
		Response struct{ Error *struct{} }
	}
	if json.Unmarshal(data, &f) != nil {
		return nil, false // such as [DONE]
	}
	named := []any{f.Code}
	if f.Error != nil {
		named = append(named, f.Error.Type, f.Error.Code)
	}
	for _, name := range named {
		if word, isText := name.(string); isText {
			words = append(words, word)
		}
	}
	return words, f.Type == "error" || f.Error != nil || f.Response.Error != nil
}

// BlamesRequest reports whether a type or code of an error says that the request is at
// fault.
func BlamesRequest(word string) bool {
	switch word {
	case invalidRequest, authentication, permission, notFound, tooLarge, rateLimit, codeInvalid:
		return true
	}
	return false
}

// nullable returns nil, the null of JSON, for the empty string.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// marshal encodes values that can always be encoded: structs of strings and numbers, and
// raw JSON that was read before.
func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode %T: %w", v, err)) // unreachable
	}
	return body
}
