package wire_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

func TestAFailureSpeaksTheLanguageOfItsAPI(t *testing.T) {
	t.Parallel()
	cause := errors.New("secret")
	f := wire.Invalid("messages[0].role", "role %q is not supported", "x")
	f.Cause = cause
	for _, api := range []wire.API{wire.Chat, wire.Completions, wire.Responses} {
		require.Equal(t, `{"error":{"message":"role \"x\" is not supported","type":"invalid_request_error","code":"invalid_value","param":"messages[0].role"}}`, string(f.Body(api)))
	}
	require.JSONEq(t, `{"type":"error","error":{"type":"invalid_request_error","message":"messages[0].role: role \"x\" is not supported"}}`, string(f.Body(wire.Messages)))
	require.ErrorIs(t, f, cause)
	require.ErrorContains(t, f, "secret")
	require.Equal(t, "m", (&wire.Failure{Message: "m"}).Error())
	fault := &wire.Failure{Status: 503, Message: "not now", Code: "infrastructure"}
	require.JSONEq(t, `{"error":{"message":"not now","type":"server_error","code":"infrastructure","param":null}}`, string(fault.Body(wire.Chat)))
}

func TestStatusesHaveAnthropicsNames(t *testing.T) {
	t.Parallel()
	for status, kind := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error", 409: "invalid_request_error",
		413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error",
	} {
		f := &wire.Failure{Status: status, Message: "m"}
		require.JSONEq(t, `{"type":"error","error":{"type":"`+kind+`","message":"m"}}`, string(f.Body(wire.Messages)))
	}
}
