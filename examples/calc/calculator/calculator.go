package calculator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	openai "github.com/sashabaranov/go-openai"
)

// defaultTurns is how often the model is asked when an Agent doesn't say.
const defaultTurns = 4

// ErrNoAnswer is returned when the model kept calling tools to the last turn.
var ErrNoAnswer = errors.New("no answer within the turns allowed")

// Agent answers questions with the help of a calculator.
type Agent struct {
	Client   *openai.Client
	Model    string
	MaxTurns int // model calls for one question; 4 if zero
}

// Connect makes a client of the OpenAI-compatible server at baseURL.
func Connect(baseURL, key string) *openai.Client {
	config := openai.DefaultConfig(key)
	config.BaseURL = baseURL
	return openai.NewClientWithConfig(config)
}

// Solve asks the model, runs the calculator for as long as the model wants it,
// and returns the final answer.
func (a Agent) Solve(ctx context.Context, question string) (string, error) {
	turns := a.MaxTurns
	if turns == 0 {
		turns = defaultTurns
	}
	messages := []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: question}}
	for range turns {
		reply, err := a.ask(ctx, messages)
		if err != nil {
			return "", err
		}
		if len(reply.ToolCalls) == 0 {
			return strings.TrimSpace(reply.Content), nil
		}
		messages = append(messages, reply)
		for _, call := range reply.ToolCalls {
			messages = append(messages, openai.ChatCompletionMessage{
				Role:       openai.ChatMessageRoleTool,
				ToolCallID: call.ID,
				Content:    use(call.Function),
			})
		}
	}
	return "", ErrNoAnswer
}

func (a Agent) ask(ctx context.Context, messages []openai.ChatCompletionMessage) (openai.ChatCompletionMessage, error) {
	response, err := a.Client.CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model:    a.Model,
		Messages: messages,
		Tools:    []openai.Tool{tool()},
	})
	if err != nil {
		return openai.ChatCompletionMessage{}, fmt.Errorf("ask model: %w", err)
	}
	if len(response.Choices) == 0 {
		return openai.ChatCompletionMessage{}, errors.New("ask model: reply without choices")
	}
	return response.Choices[0].Message, nil
}

func tool() openai.Tool {
	return openai.Tool{
		Type: openai.ToolTypeFunction,
		Function: &openai.FunctionDefinition{
			Name:        "calculator",
			Description: "Evaluates an arithmetic expression of whole numbers.",
			Parameters: json.RawMessage(`{"type":"object",` +
				`"properties":{"expression":{"type":"string"}},"required":["expression"]}`),
		},
	}
}

// use runs a tool call and returns its result. For any mistake in the call it returns
// "error", so that the model may try again.
func use(call openai.FunctionCall) string {
	var arguments struct {
		Expression string `json:"expression"`
	}
	if call.Name != "calculator" || json.Unmarshal([]byte(call.Arguments), &arguments) != nil {
		return "error"
	}
	value, err := Evaluate(arguments.Expression)
	if err != nil {
		return "error"
	}
	return value.String()
}
