package maze

import (
	"context"
	"errors"
	"fmt"
	"strings"

	openai "github.com/sashabaranov/go-openai"
)

// MaxMoves is how many moves a walk may take.
const MaxMoves = 8

// ErrTask is wrapped by errors about invalid tasks.
var ErrTask = errors.New("bad task")

// Agent walks through the maze.
type Agent struct {
	Client *openai.Client
	Model  string
}

// Walk goes from the first cell of a task such as "ai" towards the second and
// returns the cell that it ended in.
func (a Agent) Walk(ctx context.Context, task string) (string, error) {
	if len(task) != 2 || strings.Trim(task, Cells) != "" {
		return "", fmt.Errorf("%w: %q is not a pair of cells from %s", ErrTask, task, Cells)
	}
	at, goal := task[0], task[1]
	for range MaxMoves {
		if at == goal {
			break
		}
		move, err := a.ask(ctx, string([]byte{at, goal}))
		if err != nil {
			return "", err
		}
		at = Next(at, move)
	}
	return string(at), nil
}

func (a Agent) ask(ctx context.Context, state string) (string, error) {
	response, err := a.Client.CreateChatCompletion(ctx, openai.ChatCompletionRequest{
		Model:    a.Model,
		Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: state}},
	})
	if err != nil {
		return "", fmt.Errorf("ask model: %w", err)
	}
	if len(response.Choices) == 0 {
		return "", errors.New("ask model: reply without choices")
	}
	return response.Choices[0].Message.Content, nil
}
