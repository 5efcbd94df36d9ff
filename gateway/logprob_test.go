package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/wire"
)

func TestAlternativesToTokensAreRefusedByName(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		field, none, some := "top_logprobs", `"top_logprobs":0,`, `"top_logprobs":1,`
		switch p.api {
		case wire.Messages:
			return // it knows no log-probabilities
		case wire.Completions:
			field, none, some = "logprobs", `"logprobs":1,`, `"logprobs":2,`
		}
		s := newTestEnv(t, nil, serveVersions)
		require.Equal(t, http.StatusOK, s.send(t, p, p.asking("q", none)).status)
		a := s.send(t, p, p.asking("q", some))
		requireRefusal(t, a, http.StatusBadRequest, "unsupported_parameter", field)
		require.Equal(t, map[string]int{"unsupported_parameter": 1}, s.refused(t))
		served := strings.Replace(p.asking("q", some), `"m"`, `"demo@3"`, 1)
		requireRefusal(t, s.post(t, s.url+p.path, served), http.StatusBadRequest, "unsupported_parameter", field)
	})
}

func TestLogprobsHaveTheBytesOfTheirTokens(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	euro := say("€", tokenizer.End) // three tokens of a byte each
	s.replies = [][]int32{euro, euro}
	for _, more := range []string{"", `"stream":true,`} {
		a := s.chat(t, `{`+more+`"logprobs":true,"messages":[{"role":"user","content":"q"}]}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
		for _, b := range []string{`"bytes":[226]`, `"bytes":[130]`, `"bytes":[172]`} {
			require.Contains(t, a.body, b)
		}
	}
	s.replies = [][]int32{say("a€b", tokenizer.End)}
	a := s.post(t, s.base()+"/v1/completions", `{"prompt":"q","logprobs":0}`)
	require.Contains(t, a.body, `"text_offset":[0,1,2,2,2]`)
}
