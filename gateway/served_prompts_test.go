package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/prompts"
)

// promptedVersions are versions of a run with prompts, whose promoted version moves.
type promptedVersions struct {
	versions
	sets     []prompts.Set
	promoted atomic.Int32
	codec    string // instead of compact
}

func (v *promptedVersions) Resolve(ctx context.Context, name string) (model.Served, error) {
	served, err := v.versions.Resolve(ctx, name)
	served.PromptsNumber = int(v.promoted.Load())
	served.Prompts = v.sets[served.PromptsNumber].Digest()
	if v.codec != "" {
		served.Codec = v.codec
	}
	return served, err
}

// servingUnder serves versions under the prompts, of which the first are promoted.
func servingUnder(t *testing.T, sets ...prompts.Set) (*testEnv, *promptedVersions) {
	t.Helper()
	v := &promptedVersions{sets: sets}
	return newTestEnv(t, nil, servingPrompts(sets...), func(c *gateway.Config) { c.Versions = v }), v
}

// read sends messages to a version and returns what it read, and the reply.
func (s *testEnv) read(t *testing.T, base string, messages []string, headers ...string) (string, answer) {
	t.Helper()
	a := s.post(t, s.url+base+"/chat/completions", `{"model":"demo@promoted","messages":[`+strings.Join(messages, ",")+`]}`, headers...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	asked := s.requests()
	return text(asked[len(asked)-1].Prompt), a
}

func TestServedVersionsReadThePromotedPrompts(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prefixed("old"))
	for path, rest := range map[string]string{
		"/v1/chat/completions": `"messages":[{"role":"developer","content":"old rest"},{"role":"user","content":"q"}]`,
		"/v1/responses":        `"instructions":"old rest","input":"q"`,
		"/v1/messages":         `"max_tokens":8,"system":"old rest","messages":[{"role":"user","content":"q"}]`,
	} {
		s, _ := servingUnder(t, set)
		for i, body := range []string{`{"model":"demo@promoted",`, `{"model":"demo@3",`, `{"stream":true,"model":"demo@promoted",`} {
			a := s.post(t, s.url+path, body+rest+`}`)
			require.Equal(t, http.StatusOK, a.status, a.body)
			require.Equal(t, "<system>Be brief. rest<end><user>q<end><assistant>", text(s.requests()[i].Prompt), path)
			require.Equal(t, []string{"demo@12", "demo@3", "demo@12"}[i], a.header.Get("X-Fulgurite-Version"))
			require.Equal(t, "0", a.header.Get("X-Fulgurite-Prompts"))
			require.Equal(t, "1", a.header.Get("X-Fulgurite-Replaced"))
		}
	}
	s, _ := servingUnder(t, set)
	require.Equal(t, http.StatusOK, s.post(t, s.url+"/v1/completions", `{"model":"demo@3","prompt":"old"}`).status)
	require.Equal(t, "old", text(s.requests()[0].Prompt), "a text prompt is no dialog")
	count := func(headers ...string) (n struct {
		Tokens int `json:"input_tokens"`
	}) {
		a := s.post(t, s.url+"/v1/messages/count_tokens", `{"model":"demo@3","system":"old","messages":[{"role":"user","content":"q"}]}`, headers...)
		require.NoError(t, json.Unmarshal([]byte(a.body), &n), a.body)
		return n
	}
	require.Equal(t, len("Be brief.")-len("old"), count().Tokens-count("X-Fulgurite-Prompts", "none").Tokens)
}

func TestARequestIsServedWithWhatRulesMatchInIt(t *testing.T) {
	t.Parallel()
	s, _ := servingUnder(t, promptSet(t, "Be brief.", prefixed("old")))
	for _, c := range []struct {
		system, want []string
		replaced     string
	}{
		{nil, nil, "0"},
		{[]string{"new"}, []string{"new"}, "0"},
		{[]string{"{{prompt:writer}} {{prompt:search}}"}, []string{"Be brief. Finds."}, "2"},
		{[]string{"old a", "old b"}, []string{"Be brief. a", "old b"}, "1"}, // a rule replaces once
	} {
		var sent []string
		want := ""
		for i, text := range c.system {
			sent, want = append(sent, message("system", text)), want+"<system>"+c.want[i]+"<end>"
		}
		got, a := s.read(t, "/v1", append(sent, message("user", "old {{prompt:writer}}")))
		require.Equal(t, want+"<user>old {{prompt:writer}}<end><assistant>", got)
		require.Equal(t, c.replaced, a.header.Get("X-Fulgurite-Replaced"))
	}
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","messages":[`+message("system", "{{prompt:riter}}")+`]}`)
	requireRefusal(t, a, http.StatusBadRequest, "prompt_not_found", "messages[0].content")
	require.Contains(t, a.body, "there are search, writer")
}

func TestServedPromptsFollowThePointer(t *testing.T) {
	t.Parallel()
	s, v := servingUnder(t, promptSet(t, "First.", prefixed("old")), promptSet(t, "Second.", prefixed("old")))
	for _, move := range []struct {
		to   int32
		want string
	}{{0, "First."}, {1, "Second."}, {0, "First."}} {
		v.promoted.Store(move.to)
		got, a := s.read(t, "/v1", []string{message("system", "old")})
		require.Equal(t, "<system>"+move.want+"<end><assistant>", got)
		require.Equal(t, string('0'+move.to), a.header.Get("X-Fulgurite-Prompts"))
	}
}

func TestAClientCanLeaveItsRequestAsItIs(t *testing.T) {
	t.Parallel()
	s, _ := servingUnder(t, promptSet(t, "Be brief.", prefixed("old")))
	sent := []string{message("system", "old {{prompt:riter}}")}
	got, a := s.read(t, "/v1", sent, "X-Fulgurite-Prompts", "none")
	require.Equal(t, "<system>old {{prompt:riter}}<end><assistant>", got)
	require.Equal(t, "none", a.header.Get("X-Fulgurite-Prompts"))
	require.Empty(t, a.header.Get("X-Fulgurite-Replaced"))
	refused := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","messages":[`+sent[0]+`]}`, "X-Fulgurite-Prompts", "7")
	requireRefusal(t, refused, http.StatusBadRequest, "invalid_value", "X-Fulgurite-Prompts")
	require.Contains(t, refused.body, `send \"none\"`)

	plain := newTestEnv(t, nil, serveVersions)
	got, a = plain.read(t, "/v1", sent)
	require.Equal(t, "<system>old {{prompt:riter}}<end><assistant>", got)
	require.Equal(t, "none", a.header.Get("X-Fulgurite-Prompts"), "the run has no prompts")
	require.Equal(t, "demo@12", a.header.Get("X-Fulgurite-Version"))
}

func TestServedPromptsThatCantBeReadAreAFaultOfOurs(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.")
	s := newTestEnv(t, nil, servingPrompts(), func(c *gateway.Config) { c.Versions = &promptedVersions{sets: []prompts.Set{set}} })
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","messages":[`+message("user", "q")+`]}`)
	require.Equal(t, http.StatusServiceUnavailable, a.status)
	require.NotEmpty(t, a.header.Get("X-Fulgurite-Fault"))
	s.read(t, "/v1", []string{message("user", "q")}, "X-Fulgurite-Prompts", "none") // needs none
}

func TestRulesForAnAgentHoldBelowItsNameForVersionsToo(t *testing.T) {
	t.Parallel()
	s, _ := servingUnder(t, promptSet(t, "Be brief.", prompts.Rule{Prompt: "writer", Match: prompts.Match{Agent: "critic", Role: prompts.System}}))
	for base, want := range map[string]string{"/n/critic/v1": "Be brief.", "/n/writer/v1": "old", "/v1": "old"} {
		got, _ := s.read(t, base, []string{message("system", "old")})
		require.Equal(t, "<system>"+want+"<end><assistant>", got, base)
	}
	long := s.post(t, s.url+"/n/"+strings.Repeat("a", 129)+"/v1/messages", `{}`)
	require.Equal(t, http.StatusNotFound, long.status)
	require.Contains(t, long.body, `"type":"error"`, "in the shape of the API")
	other := s.post(t, s.url+"/n/critic/v1/other", `{}`)
	require.Contains(t, other.body, "POST /v1/other is not served here")
}

func TestAClientCanAskForAPromotedPrompt(t *testing.T) {
	t.Parallel()
	s, v := servingUnder(t, promptSet(t, "First."), promptSet(t, "Second."))
	s.config.ServingKey = key
	s.restart(t)
	get := func(path string, headers ...string) answer {
		a, err := s.try(t.Context(), http.MethodGet, s.url+path, "", headers...)
		require.NoError(t, err)
		return a
	}
	v.promoted.Store(1)
	for _, base := range []string{"", "/v1", "/n/writer", "/n/writer/v1"} {
		a := get(base + "/prompts/writer?model=demo%40promoted")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "Second.", a.body)
		require.Equal(t, "1", a.header.Get("X-Fulgurite-Prompts"))
	}
	a := get("/v1/prompts/none?model=demo@3")
	requireRefusal(t, a, http.StatusNotFound, "prompt_not_found", "name")
	require.Contains(t, a.body, "it has search, writer")
	requireRefusal(t, get("/v1/prompts/writer"), http.StatusBadRequest, "invalid_value", "model")
	requireRefusal(t, get("/v1/prompts/writer?model=demo@99"), http.StatusNotFound, "model_not_found", "model")
	require.Equal(t, http.StatusUnauthorized, get("/v1/prompts/writer?model=demo@3", "Authorization", "Bearer wrong").status)
	plain := newTestEnv(t, nil, serveVersions)
	a, err := plain.try(t.Context(), http.MethodGet, plain.url+"/v1/prompts/writer?model=demo@3", "")
	require.NoError(t, err)
	require.Contains(t, a.body, "the run has no prompts")
}

func TestAServerOfMessagesReadsThePromotedPrompts(t *testing.T) {
	t.Parallel()
	s, v := servingUnder(t, promptSet(t, "Be brief.", prefixed("old")))
	server := &texts{}
	v.codec, s.config.Sampler = dialog.MessagesName, server
	s.restart(t)
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","messages":[`+message("system", "old rest")+`,`+message("user", "q")+`]}`)
	require.Equal(t, "so: q", content(t, a.body))
	require.Equal(t, "Be brief. rest", server.asked[0].Messages[0].Content)
}
