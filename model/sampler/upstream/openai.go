package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
)

// openAI is a server that takes messages and returns text: OpenAI's own API, llama.cpp,
// Ollama, or LiteLLM in front of any of them. Prompts are in tokens of dialog.Messages,
// and replies are returned in such tokens.
type openAI struct {
	mu sync.Mutex
	// omitted holds the fields that the server has refused. All later requests leave them
	// out, so each field costs one refused request.
	omitted []string
}

// optionalFields lists fields that a request may leave out: it then still asks for the
// same reply, or for one with less information. Some servers have another name for
// max_tokens.
var optionalFields = []string{"max_tokens", "logprobs", "stream_options", "seed"}

// openAIRequest is the body of POST /v1/chat/completions and, with Prompt, of
// /v1/completions.
type openAIRequest struct {
	Model         string           `json:"model"`
	Messages      []dialog.Message `json:"messages,omitempty"`
	Prompt        string           `json:"prompt,omitempty"`
	MaxTokens     int              `json:"max_tokens,omitempty"`
	MaxCompletion int              `json:"max_completion_tokens,omitempty"`
	Temperature   float64          `json:"temperature"`
	TopP          float64          `json:"top_p"`
	Seed          *int64           `json:"seed,omitempty"`
	Stop          []string         `json:"stop,omitempty"`
	Logprobs      any              `json:"logprobs,omitempty"` // true, or 0 for a text completion
	Tools         []openAITool     `json:"tools,omitempty"`
	ToolChoice    any              `json:"tool_choice,omitempty"`
	Format        any              `json:"response_format,omitempty"`
	Stream        bool             `json:"stream,omitempty"`
	StreamOptions any              `json:"stream_options,omitempty"`
}

type openAITool struct {
	Type     string      `json:"type"`
	Function dialog.Tool `json:"function"`
}

// openAIRequestOf translates a prompt and a form into the server's request.
func openAIRequestOf(name string, r model.DecodeRequest) (openAIRequest, error) {
	asked, err := dialog.ReadPrompt(r.Prompt)
	if err != nil {
		return openAIRequest{}, err
	}
	seed := signed(r.Seed)
	out := openAIRequest{
		Model: name, Messages: asked.Messages, Prompt: asked.Text, MaxTokens: r.MaxTokens,
		Temperature: r.Temperature, TopP: nucleus(r.TopP), Seed: &seed, Stream: r.Emit != nil,
	}
	if out.Stream {
		out.StreamOptions = map[string]bool{"include_usage": true}
	}
	form := r.Form
	if form == nil {
		form = &model.Form{}
	}
	out.Stop = form.Stop
	if asked.Messages == nil {
		out.Logprobs = 0
		return out, nil
	}
	out.Logprobs = true
	for _, t := range asked.Tools {
		if len(form.Tools) == 0 || slices.ContainsFunc(form.Tools, func(f model.FormTool) bool { return f.Name == t.Name }) {
			out.Tools = append(out.Tools, openAITool{"function", t})
		}
	}
	switch {
	case form.NoCall:
		out.ToolChoice = "none"
	case form.Call && len(form.Tools) == 1:
		out.ToolChoice = map[string]any{"type": "function", "function": map[string]string{"name": form.Tools[0].Name}}
	case form.Call:
		out.ToolChoice = "required"
	}
	switch {
	case string(form.Schema) == "{}":
		out.Format = map[string]string{"type": "json_object"}
	case form.Schema != nil:
		schema := map[string]any{"name": "reply", "schema": form.Schema}
		if form.Strict {
			schema["strict"] = true
		}
		out.Format = map[string]any{"type": "json_schema", "json_schema": schema}
	}
	return out, nil
}

// without returns q without the fields that the server refuses.
func (q openAIRequest) without(fields []string) openAIRequest {
	for _, f := range fields {
		switch f {
		case "max_tokens":
			q.MaxCompletion, q.MaxTokens = q.MaxTokens, 0
		case "logprobs":
			q.Logprobs = nil
		case "stream_options":
			q.StreamOptions = nil
		case "seed":
			q.Seed = nil
		}
	}
	return q
}

func (p *openAI) sample(ctx context.Context, s *Sampler, at *replica, name string, r model.DecodeRequest) (reply, error) {
	in, err := openAIRequestOf(name, r)
	if err != nil {
		return reply{}, err
	}
	path := "/v1/chat/completions"
	if in.Messages == nil {
		path = "/v1/completions"
	}
	response, err := p.ask(ctx, s, at.url+path, in) //nolint:bodyclose // whoever reads it closes it
	if err != nil {
		return reply{}, err
	}
	out := openAIReply{stops: in.Stop, speaker: dialog.Speaker{Emit: r.Emit}}
	if in.Stream {
		err = readEvents(response, func(data []byte) error { return out.add(data) })
	} else {
		err = out.addWhole(response)
	}
	if err != nil {
		return reply{}, err
	}
	return out.end()
}

// ask repeats the request, without the fields that the server refuses, until the server
// accepts it.
func (p *openAI) ask(ctx context.Context, s *Sampler, url string, in openAIRequest) (*http.Response, error) {
	for {
		p.mu.Lock()
		omitted := slices.Clone(p.omitted)
		p.mu.Unlock()
		response, err := s.post(ctx, url, in.without(omitted))
		var r *refusal
		if !errors.As(err, &r) || !slices.Contains([]int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, r.status) {
			return response, err
		}
		field := refusedField(r.message, omitted)
		if field == "" {
			if errors.Is(err, model.ErrPromptTooLong) {
				return nil, err
			}
			return nil, fmt.Errorf("%w: %w", model.ErrRefused, err)
		}
		p.mu.Lock()
		if !slices.Contains(p.omitted, field) {
			p.omitted = append(p.omitted, field)
		}
		p.mu.Unlock()
	}
}

// refusedField returns the field that the server blames, or "" if the request needs it.
func refusedField(message string, omitted []string) string {
	for _, f := range optionalFields {
		if strings.Contains(message, f) && !slices.Contains(omitted, f) {
			return f
		}
	}
	return ""
}

// load implements protocol: there is nothing to load.
func (*openAI) load(context.Context, *Sampler, *replica, string, string) error {
	return fmt.Errorf("%w: a server of type %s serves what it was started with", ErrVersion, OpenAI)
}

// openAIToken is a token of a reply, in text.
type openAIToken struct {
	Token   string  `json:"token"`
	Logprob float64 `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

func (t openAIToken) text() []byte {
	if len(t.Bytes) == 0 {
		return []byte(t.Token)
	}
	text := make([]byte, len(t.Bytes))
	for i, b := range t.Bytes {
		text[i] = byte(b) //nolint:gosec // they are bytes
	}
	return text
}

// openAIWords is a message, or the part that an event adds to it.
type openAIWords struct {
	Content   *string          `json:"content"`
	Refusal   *string          `json:"refusal"`
	Reasoning *string          `json:"reasoning_content"`
	Thinking  *string          `json:"reasoning"`
	Calls     []openAIToolCall `json:"tool_calls"`
}

type openAIToolCall struct {
	Index    *int            `json:"index"`
	Function dialog.Function `json:"function"`
}

// openAIEvent is a reply, or an event of one.
type openAIEvent struct {
	ID      string `json:"id"`
	Model   string `json:"model"`
	Choices []struct {
		Message  openAIWords     `json:"message"`
		Delta    openAIWords     `json:"delta"`
		Text     string          `json:"text"`
		Logprobs json.RawMessage `json:"logprobs"`
		Finish   string          `json:"finish_reason"`
		// Stopped is the stop text that ended the reply, if the server reports it.
		Stopped any `json:"stop_reason"`
	} `json:"choices"`
	Usage *dialog.Usage   `json:"usage"`
	Error json.RawMessage `json:"error"`
}
