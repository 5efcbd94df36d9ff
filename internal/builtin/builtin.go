// Package builtin holds the agents that our commands bring with them: what a
// spec may name in agent.func without a program of its own. It is not where
// others register theirs; a worker with its own functions is a command of its
// own.
package builtin

import (
	"context"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/examples/maze"
)

// Agents are the functions by name.
func Agents() agent.Registry {
	return agent.Registry{"calculator": calculate, "maze": walk}
}

// calculate runs an example's agent. The agent itself knows nothing of
// training; only the base URL and the key come from here.
func calculate(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	return calculator.Agent{Client: calculator.Connect(env.BaseURL, env.Key), Model: env.Model}.Solve(ctx, task.Input)
}

func walk(ctx context.Context, task agent.Task, env agent.Env) (string, error) {
	return maze.Agent{Client: calculator.Connect(env.BaseURL, env.Key), Model: env.Model}.Walk(ctx, task.Input)
}
