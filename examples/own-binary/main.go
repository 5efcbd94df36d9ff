// Command own-binary is a worker with its own agents: Go functions that a spec names in
// agent.func.
//
// It is a complete program for use outside this repository, and imports only packages
// that such a program may import. It has the subcommands of fulgurite-worker, with these
// functions as agents. If the other workers of a fleet do not have these functions, it
// serves only its own queue, which the spec names in agent.queue:
//
//	own-binary cpu --only --queue mine
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/workers"
)

func main() { workers.Main(agent.Registry{"mine": mine}) }

// mine asks the model once and returns what it says.
func mine(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	question, err := json.Marshal(map[string]any{
		"model": env.Model, "messages": []map[string]string{{"role": "user", "content": task.Input}},
	})
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, env.BaseURL+"/chat/completions", bytes.NewReader(question))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+env.Key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	var reply struct {
		Choices []struct{ Message struct{ Content string } }
	}
	if err := json.NewDecoder(response.Body).Decode(&reply); err != nil {
		return "", fmt.Errorf("read reply: %w", err)
	}
	if response.StatusCode != http.StatusOK || len(reply.Choices) == 0 {
		return "", fmt.Errorf("the model answers %s", response.Status)
	}
	return reply.Choices[0].Message.Content, nil
}
