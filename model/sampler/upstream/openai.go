package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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

// openAIReply is a reply that is being translated into tokens of dialog.Messages.
type openAIReply struct {
	stops   []string
	speaker dialog.Speaker
	facts   dialog.Facts
	calls   []dialog.Function
}

func (o *openAIReply) addWhole(response *http.Response) error {
	var all json.RawMessage
	if err := readJSON(response, &all); err != nil {
		return err
	}
	return o.add(all)
}

// add takes one event of a stream, or a complete reply.
func (o *openAIReply) add(data []byte) error {
	var e openAIEvent
	if err := decodeObject(data, &e); err != nil {
		return err
	}
	if len(e.Error) > 0 && string(e.Error) != "null" {
		return fmt.Errorf("%w: %.300s", &refusal{http.StatusInternalServerError, string(e.Error)}, e.Error)
	}
	if e.ID != "" {
		o.facts.ID, o.facts.Model = e.ID, e.Model
	}
	if e.Usage != nil {
		o.facts.Usage = e.Usage
	}
	if len(e.Choices) == 0 {
		return nil // usage
	}
	c := e.Choices[0]
	for _, words := range []openAIWords{c.Message, c.Delta} {
		o.speaker.Think(text(words.Reasoning, words.Thinking))
		o.addText(text(words.Content, words.Refusal), c.Logprobs)
		if err := o.call(words.Calls); err != nil {
			return err
		}
	}
	o.addText(c.Text, c.Logprobs)
	if c.Finish != "" {
		o.facts.Finish = c.Finish
	}
	if stopped, ok := c.Stopped.(string); ok && slices.Contains(o.stops, stopped) {
		o.speaker.Say([]byte(stopped)) // the gateway removes it again, and so learns which one it was
	}
	return nil
}

// text returns the first of texts that is neither nil nor empty, or "".
func text(texts ...*string) string {
	for _, t := range texts {
		if t != nil && *t != "" {
			return *t
		}
	}
	return ""
}

// addText adds text, split into the server's tokens if these spell the text.
func (o *openAIReply) addText(text string, logprobs json.RawMessage) {
	tokens := openAITokens(logprobs)
	var spelled []byte
	for _, t := range tokens {
		spelled = append(spelled, t.text()...)
	}
	if !bytes.Equal(spelled, []byte(text)) {
		o.speaker.Say([]byte(text))
		return
	}
	for _, t := range tokens {
		o.speaker.SayToken(t.text(), float32(t.Logprob))
	}
}

// openAITokens reads log-probabilities in the form of chats or of completions. It returns
// nil for any other form.
func openAITokens(logprobs json.RawMessage) []openAIToken {
	var parsed struct {
		Content []openAIToken `json:"content"`
		Tokens  []string      `json:"tokens"`
		Values  []*float64    `json:"token_logprobs"`
	}
	if json.Unmarshal(logprobs, &parsed) != nil {
		return nil
	}
	if parsed.Content == nil && len(parsed.Tokens) == len(parsed.Values) {
		for i, t := range parsed.Tokens {
			if parsed.Values[i] == nil {
				return nil
			}
			parsed.Content = append(parsed.Content, openAIToken{Token: t, Logprob: *parsed.Values[i]})
		}
	}
	for _, t := range parsed.Content {
		if t.Logprob > 1e-3 || math.IsNaN(t.Logprob) || slices.ContainsFunc(t.Bytes, func(b int) bool { return b < 0 || b > math.MaxUint8 }) {
			return nil
		}
	}
	return parsed.Content
}

// call adds tool calls, or the parts that events add to them.
func (o *openAIReply) call(calls []openAIToolCall) error {
	for i, c := range calls {
		at := i
		if c.Index != nil {
			at = *c.Index
		}
		if at < 0 || at > len(o.calls) {
			return fmt.Errorf("%w: tool call %d after %d", ErrReply, at, len(o.calls))
		}
		if at == len(o.calls) {
			o.calls = append(o.calls, dialog.Function{})
		}
		o.calls[at].Name += c.Function.Name
		o.calls[at].Arguments += c.Function.Arguments
	}
	return nil
}

// end returns the reply once it is complete.
func (o *openAIReply) end() (reply, error) {
	if o.facts.Finish == "" {
		return reply{}, fmt.Errorf("%w: it does not say why it ended", ErrReply)
	}
	for _, c := range o.calls {
		o.speaker.Call(c)
	}
	return reply{completion: o.speaker.End(o.facts), relayed: true}, nil
}

// ErrLogprobs is wrapped if a server reports other log-probabilities than those of the
// distribution that it samples from.
var ErrLogprobs = errors.New("the server's log-probabilities are those before its settings apply, whatever it samples from")

// checkLogprobs checks, once for each replica, whether its log-probabilities take into
// account what the request changes: the temperature, and the ids that are left out. A replica that failed is probed again, because it may return
// with other settings.
func (s *Sampler) checkLogprobs(ctx context.Context, at *replica, name string, temperature float64) error {
	changed := temperature != 1 || s.options.Unused != ""
	if s.options.Versions == None || temperature == 0 || !changed || at.isChecked() {
		return nil
	}
	applied, err := s.protocol.appliesTemperature(ctx, s, at, name)
	if err != nil {
		return fmt.Errorf("probe its log-probabilities: %w", err)
	}
	if !applied {
		how := "start it with --logprobs-mode processed_logprobs (vLLM) or without RETURN_ORIGINAL_LOGPROB (SGLang)"
		if s.options.Unused != "" {
			return fmt.Errorf("%w: %s: %d rows of the model's vocabulary have no token and are left out", ErrLogprobs, how, s.options.Unused.Tokens())
		}
		return fmt.Errorf("%w: %s, or set sampling.temperature to 1, not %g", ErrLogprobs, how, temperature)
	}
	at.markChecked()
	return nil
}

// appliesTemperature implements protocol. It allows only one token. That token then has
// the log-probability 0, unless the server reports log-probabilities of the distribution
// before it is changed.
func (p vllm) appliesTemperature(ctx context.Context, s *Sampler, at *replica, name string) (bool, error) {
	in, err := p.request(name, model.DecodeRequest{Prompt: []int32{0}, MaxTokens: 1, Temperature: 1})
	if err != nil {
		return false, err
	}
	in.Allowed, in.LogitBias = []int32{1}, nil
	response, err := s.post(ctx, at.url+"/v1/completions", in) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return false, err
	}
	var all vllmReply
	if err := readJSON(response, &all); err != nil {
		return false, err
	}
	var out reply
	if err := all.addTo(&out, nil); err != nil {
		return false, err
	}
	if len(out.completion.Logprobs) != 1 {
		return false, fmt.Errorf("%w: %d log-probabilities of one token", ErrReply, len(out.completion.Logprobs))
	}
	return out.completion.Logprobs[0] > -1e-3, nil
}

// appliesTemperature implements protocol. It samples at a temperature that makes all
// tokens about equally likely, so their log-probabilities must be about equal.
func (p sglang) appliesTemperature(ctx context.Context, s *Sampler, at *replica, name string) (bool, error) {
	const hot, tokens, spread = 1e4, 16, 0.1
	got, err := p.sample(ctx, s, at, name, model.DecodeRequest{Prompt: []int32{0}, MaxTokens: tokens, Temperature: hot})
	if err != nil {
		return false, err
	}
	all := got.completion.Logprobs
	if len(all) == 0 {
		return false, fmt.Errorf("%w: it has no log-probabilities", ErrReply)
	}
	return slices.Max(all)-slices.Min(all) < spread, nil
}

// appliesTemperature implements protocol. Nothing that such a server samples is trained.
func (*openAI) appliesTemperature(context.Context, *Sampler, *replica, string) (bool, error) {
	return true, nil
}

func (r *replica) isChecked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checked
}

func (r *replica) markChecked() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked = true
}

// neutral holds the settings that change which token is sampled, at the values that
// change nothing. They are always sent: a server fills in missing ones from the model's
// generation_config.json or from its command line, and tokens would then come from
// another distribution than the recorded one.
type neutral struct {
	RepetitionPenalty float64 `json:"repetition_penalty"`
	PresencePenalty   float64 `json:"presence_penalty"`
	FrequencyPenalty  float64 `json:"frequency_penalty"`
	MinP              float64 `json:"min_p"`
	N                 int     `json:"n"`
}

func neutrals() neutral { return neutral{RepetitionPenalty: 1, N: 1} }

// stopping follows a reply until a stop text ends it. A server looks for stop texts in
// everything that a model writes, and so cuts thoughts and calls in half. So the texts are
// not sent: the codec finds them in the content alone, as it does for the built-in sampler.
type stopping struct {
	constraint model.Constraint
	emit       func(token int32, logprob float32)
	leave      context.CancelFunc // ends the request
	so         model.Completion
	ended      bool
}

// sampleUntil samples at a server, up to a stop text of the request's form.
func (s *Sampler) sampleUntil(ctx context.Context, at *replica, name string, r model.DecodeRequest) (reply, error) {
	if r.Form == nil || len(r.Form.Stop) == 0 || s.options.Type == OpenAI {
		return s.protocol.sample(ctx, s, at, name, r)
	}
	if s.options.Constrain == nil {
		return reply{}, fmt.Errorf("%w: no stop texts are possible at this server", model.ErrForm)
	}
	constraint, err := s.options.Constrain(model.Form{Codec: r.Form.Codec, Tools: r.Form.Tools, Stop: r.Form.Stop, Bare: r.Form.Bare})
	if err != nil {
		return reply{}, fmt.Errorf("%w: codec %q: %w", model.ErrForm, r.Form.Codec, err)
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	follow := &stopping{constraint: constraint, emit: r.Emit, leave: leave}
	form := *r.Form
	form.Stop = nil
	r.Form, r.Emit = &form, follow.take
	got, err := s.protocol.sample(ctx, s, at, name, r)
	if follow.ended {
		got.completion, err = follow.so, nil
		got.completion.Finish = "stop"
	}
	return got, err
}

// take takes the next token.
func (f *stopping) take(token int32, logprob float32) {
	if f.ended {
		return
	}
	f.so.Tokens, f.so.Logprobs = append(f.so.Tokens, token), append(f.so.Logprobs, logprob)
	if f.emit != nil {
		f.emit(token, logprob)
	}
	if f.constraint.Accept(token) {
		f.ended = true
		f.leave()
	}
}
