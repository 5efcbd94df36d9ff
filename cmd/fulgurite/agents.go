package main

import (
	"context"

	"github.com/sashabaranov/go-openai"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
)

// agents are the functions that a spec may name in agent.func.
func agents() agent.Registry {
	return agent.Registry{"calculator": calculate}
}

// calculate runs the example's agent. The agent itself knows nothing of
// training; only the base URL and the key come from here.
func calculate(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	config := openai.DefaultConfig(env.Key)
	config.BaseURL = env.BaseURL
	return calculator.Agent{Client: openai.NewClientWithConfig(config), Model: env.Model}.Solve(ctx, task.Input)
}
