package gateway

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/trace"
)

// chatReply is the JSON of a chat completion.
type chatReply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   chatUsage    `json:"usage"`
}

type chatChoice struct {
	Index        int           `json:"index"`
	Message      chatMessage   `json:"message"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason string        `json:"finish_reason"`
}

type chatMessage struct {
	Role      dialog.Role       `json:"role"`
	Content   *string           `json:"content"`
	Refusal   *string           `json:"refusal"`
	ToolCalls []dialog.ToolCall `json:"tool_calls,omitempty"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
	Refusal []chatLogprob `json:"refusal"`
}

type chatLogprob struct {
	Token   string        `json:"token"`
	Logprob float32       `json:"logprob"`
	Bytes   []int         `json:"bytes"`
	Top     []chatLogprob `json:"top_logprobs"`
}

type chatUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
}

// respond is the body that answers a request with a sampled call.
func respond(codec dialog.Codec, request *chatRequest, c *trace.Call, reply dialog.Message) ([]byte, error) {
	choice := chatChoice{
		Message:      chatMessage{Role: dialog.Assistant, Content: &reply.Content, ToolCalls: reply.ToolCalls},
		FinishReason: "stop",
	}
	switch {
	case len(reply.ToolCalls) > 0:
		choice.FinishReason = "tool_calls"
		if reply.Content == "" {
			choice.Message.Content = nil
		}
	case c.Finish == "length":
		choice.FinishReason = "length"
	}
	if request.logprobs {
		choice.Logprobs = &chatLogprobs{Content: []chatLogprob{}}
		for i, id := range c.Completion {
			if slices.Contains(codec.Stop(), id) {
				break
			}
			choice.Logprobs.Content = append(choice.Logprobs.Content,
				chatLogprob{Token: codec.Text([]int32{id}), Logprob: c.Logprobs[i], Top: []chatLogprob{}})
		}
	}
	name := request.model
	if name == "" {
		name = c.Policy
	}
	body, err := json.Marshal(chatReply{
		ID: c.ID, Object: "chat.completion", Created: c.Started.Unix(), Model: name, Choices: []chatChoice{choice},
		Usage: chatUsage{len(c.Prompt), len(c.Completion), len(c.Prompt) + len(c.Completion)},
	})
	if err != nil {
		return nil, fmt.Errorf("encode reply %s: %w", c.ID, err)
	}
	return body, nil
}
