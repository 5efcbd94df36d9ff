package gateway_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
)

// A sampler has to know the tools to tell a call, which no stop text ends, from content.
func TestAStopTextComesWithTheToolsThatMayBeCalled(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	got := s.chat(t, `{"model":"any","stop":["\n"],"messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}]}`)
	require.Equal(t, http.StatusOK, got.status, got.body)
	form := s.requests()[0].Form
	require.Equal(t, []string{"\n"}, form.Stop)
	require.Equal(t, []model.FormTool{{Name: "f", Parameters: []byte(`{"type":"object"}`)}}, form.Tools)
	require.False(t, form.Masks())
}
