package agent

import "context"

// Launcher runs one attempt of an agent to its end.
type Launcher interface {
	// Launch returns the agent's result. An agent that fails by itself is a Result with a
	// Failure and a nil error. An error means that the agent could not be started or was
	// interrupted (no process, a lost shim, ctx ended), and that the attempt says nothing
	// about the agent.
	//
	// When Launch returns, nothing of the agent runs any more, except Go functions that
	// ignore their context (see Func) and services, whose connection is closed.
	Launch(ctx context.Context, job Job) (Result, error)
}
