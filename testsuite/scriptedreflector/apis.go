package scriptedreflector

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/sashabaranov/go-openai"
)

// modelName is what the reflector calls itself.
const modelName = "synthetic"

// api reads questions and writes replies.
type api struct {
	read  func(io.Reader) (question, error)
	write func(question, reply) any
}

// apis returns the APIs by path.
func apis() map[string]api {
	return map[string]api{
		"/v1/chat/completions": {readCompletion, writeCompletion},
		"/v1/messages":         {readMessage, writeMessage},
	}
}

var errShape = errors.New("want a system message and one message of the user, as texts")

func readCompletion(body io.Reader) (question, error) {
	var r openai.ChatCompletionRequest
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return question{}, err
	}
	m := r.Messages
	if len(m) != 2 || m[0].Role != openai.ChatMessageRoleSystem || m[1].Role != openai.ChatMessageRoleUser {
		return question{}, errShape
	}
	q := question{system: m[0].Content, user: m[1].Content, maxTokens: max(r.MaxTokens, r.MaxCompletionTokens)} //nolint:staticcheck // what most clients send
	if r.Seed != nil && *r.Seed != 0 {
		q.try = strconv.Itoa(*r.Seed)
	}
	return q, nil
}

func writeCompletion(q question, r reply) any {
	reason := openai.FinishReasonStop
	if r.cutOff {
		reason = openai.FinishReasonLength
	}
	return openai.ChatCompletionResponse{
		ID: "synthetic", Object: "chat.completion", Model: modelName,
		Choices: []openai.ChatCompletionChoice{{
			Message: openai.ChatCompletionMessage{Role: openai.ChatMessageRoleAssistant, Content: r.text}, FinishReason: reason,
		}},
		Usage: openai.Usage{PromptTokens: q.tokens(), CompletionTokens: r.tokens(q), TotalTokens: q.tokens() + r.tokens(q)},
	}
}

// messageBody is a request of Anthropic's API.
type messageBody struct {
	System    string `json:"system"`
	MaxTokens int    `json:"max_tokens"`
	Messages  []struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	} `json:"messages"`
	Metadata struct {
		UserID string `json:"user_id"`
	} `json:"metadata"`
}

func readMessage(body io.Reader) (question, error) {
	var r messageBody
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return question{}, err
	}
	if len(r.Messages) != 1 || r.Messages[0].Role != "user" || r.MaxTokens == 0 {
		return question{}, errShape
	}
	q := question{system: r.System, user: r.Messages[0].Content, maxTokens: r.MaxTokens}
	// The try, as internal/chatclient tells it to an API that has no seed.
	q.try = strings.TrimPrefix(r.Metadata.UserID, "repeat-")
	return q, nil
}

func writeMessage(q question, r reply) any {
	reason := "end_turn"
	if r.cutOff {
		reason = "max_tokens"
	}
	return map[string]any{
		"id": "synthetic", "type": "message", "role": "assistant", "model": modelName, "stop_reason": reason,
		"content": []any{map[string]any{"type": "text", "text": r.text}},
		"usage":   map[string]any{"input_tokens": q.tokens(), "output_tokens": r.tokens(q)},
	}
}

// tokens counts as if four bytes were a token.
func (q question) tokens() int { return (len(q.system) + len(q.user) + 3) / 4 }

func (r reply) tokens(q question) int {
	if r.cutOff && q.maxTokens > 0 {
		return q.maxTokens
	}
	return (len(r.text) + 3) / 4
}
