// Package builtin holds the agents that are part of our commands, so that a spec may name
// them in agent.func without any other program. Users do not register their functions
// here: a worker with its own functions is a separate command.
package builtin

import (
	"context"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/examples/maze"
)

// Agents returns the agents' functions by name.
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
