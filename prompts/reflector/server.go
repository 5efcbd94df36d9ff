package reflector

import (
	"context"
	"errors"
	"fmt"

	"github.com/fulgurite/fulgurite/internal/chatclient"
)

// connections is how many unused connections to a server stay open.
const connections = 8

// server is a reflector behind an HTTP API.
type server struct {
	kind      Type
	model     string
	maxTokens int
	client    *chatclient.Client
}

func newServer(o Options) *server {
	api := chatclient.OpenAI
	if o.Type == Anthropic {
		api = chatclient.Anthropic
	}
	return &server{o.Type, o.Model, o.MaxTokens, chatclient.New(chatclient.Options{
		API: api, URL: o.URL, Model: o.Model, Key: o.Key, Timeout: o.Timeout, Connections: connections,
	})}
}

// Reflect asks the server's model.
func (s *server) Reflect(ctx context.Context, q Question) (Reply, error) {
	q = q.complete(s.maxTokens)
	request := chatclient.Request{MaxTokens: q.MaxTokens, Repeat: q.Try}
	if q.System != "" {
		request.Messages = append(request.Messages, chatclient.Message{Role: chatclient.System, Content: q.System})
	}
	request.Messages = append(request.Messages, chatclient.Message{Role: chatclient.User, Content: q.User})
	r, err := s.client.Ask(ctx, request)
	switch {
	case errors.As(err, new(*chatclient.Refusal)):
		return Reply{}, fmt.Errorf("ask %s: %w: %w", s.model, ErrRefused, err)
	case err != nil:
		return Reply{}, fmt.Errorf("ask %s: %w", s.model, err)
	}
	return storable(Reply{Text: r.Text, CutOff: r.CutOff, Usage: Usage(r.Usage), Model: r.Model}), nil
}

// Key is that of the API and the model's name.
func (s *server) Key(q Question) string {
	return digest(append([]string{string(s.kind), s.model}, q.complete(s.maxTokens).texts()...)...)
}

// Close closes idle connections.
func (s *server) Close() { s.client.Close() }
