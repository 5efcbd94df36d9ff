package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
)

// unthinking is the compact codec with a template that reads two variables.
type unthinking struct{ dialog.Codec }

func (unthinking) Variable(name string) (json.RawMessage, bool) {
	switch name {
	case "enable_thinking":
		return json.RawMessage("false"), true
	case "style":
		return nil, true
	}
	return nil, false
}

func TestVariablesOfARequestAreObeyedOrRefused(t *testing.T) {
	t.Parallel()
	onProtocols(t, func(t *testing.T, p protocol) {
		s := newTestEnv(t, nil, func(c *gateway.Config) {
			c.Codecs = func(string) (dialog.Codec, error) { return unthinking{dialog.Compact()}, nil }
		})
		for kwargs, refused := range map[string]string{
			`{"enable_thinking":false}`:                  "",
			`{"enable_thinking":false,"of_others":true}`: "",
			`{}`:                       "",
			`null`:                     "",
			`{"enable_thinking":true}`: "chat_template_kwargs.enable_thinking is true, but the model's prompts are rendered with false: leave it out, or set model.template_variables of the run to {enable_thinking: true}",
			`{"style":"terse"}`:        `chat_template_kwargs.style is \"terse\", but the model's prompts are rendered with no such variable`,
		} {
			got := s.send(t, p, p.asking("q", `"chat_template_kwargs":`+kwargs+`,`))
			if refused == "" {
				require.Equal(t, http.StatusOK, got.status, got.body)
				continue
			}
			require.Equal(t, http.StatusBadRequest, got.status, kwargs)
			require.Contains(t, got.body, refused)
		}
	})
}
