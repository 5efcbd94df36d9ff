package wire

import (
	"fmt"
	"net/http"
	"slices"
)

// Decode reads a request of an API as its clients write it. Fields that it does not
// know, and those that no reply depends on, are accepted and ignored. The error is a
// *Failure.
func Decode(api API, body []byte) (*Request, error) {
	r := &Request{API: api, Body: slices.Clone(body), N: 1}
	decode := map[API]func(*Request, []byte) error{
		Chat: (*Request).decodeChat, Completions: (*Request).decodeCompletions,
		Responses: (*Request).decodeResponses, Messages: (*Request).decodeMessages,
	}[api]
	if decode == nil {
		return nil, &Failure{Status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf("there is no API %q", api)}
	}
	if err := decode(r, body); err != nil {
		return nil, err
	}
	return r, nil
}
