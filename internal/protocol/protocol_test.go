package protocol_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/wire"
)

// streams opens a streamed reply of each API.
func streams(t *testing.T) map[wire.API]*wire.Stream {
	t.Helper()
	all := map[wire.API]*wire.Stream{}
	for api, body := range map[wire.API]string{
		wire.Chat:        `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`,
		wire.Completions: `{"model":"m","prompt":"hi","stream":true}`,
		wire.Responses:   `{"model":"m","input":"hi","stream":true}`,
		wire.Messages:    `{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hi"}],"stream":true}`,
	} {
		request, err := wire.Decode(api, []byte(body))
		require.NoError(t, err)
		all[api] = request.Open(wire.Reply{ID: "x", Model: "m", Choices: make([]wire.Choice, 1)})
	}
	return all
}

func TestEveryEventOfEveryAPIIsRecognized(t *testing.T) {
	t.Parallel()
	failures := map[string]struct {
		failure wire.Failure
		blames  bool
	}{
		"a fault":            {wire.Failure{Status: 503, Code: protocol.CodeInfrastructure, Message: "not now"}, false},
		"a broken gateway":   {wire.Failure{Status: 500, Message: "panic"}, false},
		"a field":            {*wire.Invalid("n", "too large"), true},
		"the end":            {wire.Failure{Status: 409, Code: protocol.CodeFenced, Message: "over"}, true},
		"the limit on calls": {wire.Failure{Status: 400, Code: protocol.CodeCallLimit, Message: "8 calls"}, true},
		"the limit on words": {wire.Failure{Status: 400, Code: protocol.CodeTokenLimit, Message: "8 tokens"}, true},
	}
	for name, c := range failures {
		for api, s := range streams(t) {
			require.Equal(t, protocol.Keepalive, protocol.KindOf(s.Keepalive()), "%s", api)
			require.Equal(t, protocol.ReplyEvent, protocol.KindOf(s.Content(0, `an "error": null`, nil)), "%s", api)
			event := s.Fail(&c.failure)
			require.Equal(t, protocol.ErrorEvent, protocol.KindOf(event), "%s of %s: %s", name, api, event)
			require.Equal(t, c.blames, protocol.BlamesAgent(event), "%s of %s: %s", name, api, event)
			if api != wire.Messages { // its errors have no code, which is in the header instead
				require.Equal(t, c.failure.Code, protocol.CodeOf(http.Header{}, protocol.EventData(event)), "%s of %s", name, api)
				require.Equal(t, c.failure.Code, protocol.CodeOf(http.Header{}, c.failure.Body(api)), "%s of %s", name, api)
			}
		}
	}
}

func TestTheCodeOfTheHeaderWins(t *testing.T) {
	t.Parallel()
	header := http.Header{}
	require.Empty(t, protocol.CodeOf(header, []byte("no JSON")))
	header.Set(protocol.CodeHeader, protocol.CodeFenced)
	require.Equal(t, protocol.CodeFenced, protocol.CodeOf(header, []byte(`{"error":{"code":"other"}}`)))
}

func TestFaultsAreDeclaredOrOfProxies(t *testing.T) {
	t.Parallel()
	reply := func(status int, fault string) *http.Response {
		return &http.Response{StatusCode: status, Header: http.Header{http.CanonicalHeaderKey(protocol.FaultHeader): {fault}}}
	}
	for _, status := range []int{502, 503, 504} {
		require.True(t, protocol.IsFault(reply(status, "")), "%d", status)
	}
	require.True(t, protocol.IsFault(reply(500, protocol.CodeInfrastructure)))
	require.False(t, protocol.IsFault(reply(500, "")))
	require.False(t, protocol.IsFault(reply(400, protocol.CodeInfrastructure)))
}
