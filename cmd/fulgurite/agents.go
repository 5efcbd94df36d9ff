package main

import (
	"context"

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
	return calculator.Agent{Client: calculator.Connect(env.BaseURL, env.Key), Model: env.Model}.Solve(ctx, task.Input)
}
