// Package agent runs other people's agents.
//
// # Agents
//
// An agent is a Go function inside the worker ([Func]), a program that is run for each
// attempt ([Command]) or an HTTP service that runs all the time ([Service]). A worker
// knows its functions by name:
//
//	func main() { workers.Main(agent.Registry{"mine": mine}) }
//
//	func mine(ctx context.Context, task agent.Task, env agent.Env) (string, error) { … }
//
// All of them reach their model at the base URL of their attempt with the attempt's key,
// and return the result to grade. External agents, which another program starts, get the
// same in an [Invocation].
//
// # Jobs and results
//
// A [Job] says what to run, where its model calls go and its [Limits]; a [Result] says
// how it ended. [Around] adds [Hooks], which prepare an attempt and clean up after it.
//
// An agent that fails by itself is a result like any other, with a [Failure]. Faults of
// the machinery are errors, since they must never teach a policy anything. Some failures
// may be the machine's as well ([Failure.Unclear]): an agent that hangs, or is killed by
// a signal from outside. An agent can also say itself that its attempt has no valid reward
// ([Retry]), so that another one is made. The package does not judge rewards, retries nothing, and does
// not use the store.
//
// # Where the rest is
//
// Package agent/forwarder stands between agents and the gateway and hides its faults.
// Package agent/process supervises programs, so that none survives its worker. Packages
// agent/sandbox and agent/container isolate them.
//
// # Promises
//
// After Launch returns, nothing of the agent runs, except services and functions that
// ignore their context. A command sees only the environment built for it, nothing of the
// worker's, and in a container the variables of its image. Every attempt at a rollout sees the same home, time zone and variables,
// except for the attempt's address and key.
//
// Agents that are commands run as the worker's user. They see of each other what any two
// processes of a user see, which includes their environment and keys. Only the worker
// itself can be hidden from them ([Conceal]).
package agent
