package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/sashabaranov/go-openai"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/record"
)

// versions has two versions.
type versions struct{}

func (versions) Resolve(_ context.Context, name string) (model.Served, error) {
	v := model.Served{VersionID: model.VersionID{Run: "demo", Policy: "main"}, Codec: "compact"}
	switch name {
	case "demo@promoted":
		v.Number = 12
	case "demo@3":
		v.Number = 3
	case "demo@4":
		return v, errors.New("database gone")
	default:
		return v, fmt.Errorf("version %q: %w", name, record.ErrNotFound)
	}
	return v, nil
}

func (versions) List(context.Context) ([]string, error) {
	return []string{"demo@promoted", "demo@3"}, nil
}

func serveVersions(c *gateway.Config) { c.Versions = versions{} }

func TestPromotedVersionsAreServedByName(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	s.replies = [][]int32{say("4", tokenizer.End)}
	config := openai.DefaultConfig("")
	config.BaseURL = s.url + "/v1"
	client := openai.NewClientWithConfig(config)
	reply, err := client.CreateChatCompletion(t.Context(), openai.ChatCompletionRequest{
		Model: "demo@promoted", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "2+2"}},
	})
	require.NoError(t, err)
	require.Equal(t, "4", reply.Choices[0].Message.Content)
	require.Equal(t, "demo@promoted", reply.Model)
	require.Equal(t, 12, s.version[0].Number)
	require.InDelta(t, 1, s.requests()[0].Temperature, 0)
	require.Equal(t, 1024, s.requests()[0].MaxTokens)
	require.Empty(t, s.recorded(t))

	list, err := client.ListModels(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Models, 2)
	one, err := client.GetModel(t.Context(), "demo@3")
	require.NoError(t, err)
	require.Equal(t, "demo@3", one.ID)
}

func TestServedSettingsAreTheClients(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions)
	url := s.url + "/v1/chat/completions"
	const hi = `"model":"demo@3","messages":[{"role":"user","content":"hi"}]`
	require.Equal(t, http.StatusOK, s.post(t, url, `{"temperature":0,"max_tokens":7,"seed":-3,`+hi+`}`).status)
	require.Equal(t, http.StatusOK, s.post(t, url, `{"seed":null,`+hi+`}`).status)
	asked := s.requests()
	seed := int64(-3)
	require.Equal(t, uint64(seed), asked[0].Seed)
	require.Zero(t, asked[0].Temperature)
	require.Equal(t, 7, asked[0].MaxTokens)
	require.NotEqual(t, asked[0].Seed, asked[1].Seed)

	requireRefusal(t, s.post(t, url, `{"temperature":3,`+hi+`}`), http.StatusBadRequest, "invalid_value", "temperature")
	requireRefusal(t, s.post(t, url, `{"temperature":-1,`+hi+`}`), http.StatusBadRequest, "invalid_value", "temperature")
	requireRefusal(t, s.post(t, url, `{"seed":1.5,`+hi+`}`), http.StatusBadRequest, "invalid_value", "seed")
	requireRefusal(t, s.post(t, url, `{"model":"demo@99","messages":[{"role":"user"}]}`), http.StatusNotFound, "model_not_found", "model")
	require.Equal(t, http.StatusServiceUnavailable, s.post(t, url, `{"model":"demo@4","messages":[{"role":"user"}]}`).status)
	missing, err := s.try(t.Context(), http.MethodGet, s.url+"/v1/models/demo@99", "")
	require.NoError(t, err)
	requireRefusal(t, missing, http.StatusNotFound, "model_not_found", "model")
}

func TestTheServingKeyGuardsServing(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, serveVersions, func(c *gateway.Config) { c.ServingKey = "sk-serve" })
	requireRefusal(t, s.post(t, s.url+"/v1/chat/completions", ask("a")), http.StatusUnauthorized, "invalid_api_key", "")
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","messages":[{"role":"user","content":"hi"}]}`, "Authorization", "Bearer sk-serve")
	require.Equal(t, http.StatusOK, a.status)
}

func TestAttemptsListTheirOneModel(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	list, err := s.client().ListModels(t.Context())
	require.NoError(t, err)
	require.Len(t, list.Models, 1)
	require.Equal(t, "demo@2", list.Models[0].ID)
	one, err := s.client().GetModel(t.Context(), "anyone/gpt-4o")
	require.NoError(t, err)
	require.Equal(t, "anyone/gpt-4o", one.ID)
}

func TestHealthIsAnswered(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil)
	a, err := s.try(t.Context(), http.MethodGet, s.url+"/healthz", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status)
}

// joint has versions with several policies.
type joint struct{ versions }

func (joint) Resolve(context.Context, string) (model.Served, error) {
	return model.Served{}, fmt.Errorf("%w: name demo:writer@3", model.ErrJoint)
}

func TestAJointVersionIsNotServed(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, nil, func(c *gateway.Config) { c.Versions = joint{} })
	a := s.post(t, s.url+"/v1/chat/completions", `{"model":"demo@3","messages":[{"role":"user","content":"2+2"}]}`)
	require.Equal(t, http.StatusNotFound, a.status)
	require.Contains(t, a.body, "name demo:writer@3")
	require.Contains(t, a.body, "model_not_found")
}
