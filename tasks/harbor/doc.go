// Package harbor reads tasks in Harbor's format (https://www.harborframework.com/docs/tasks)
// and makes the places where an agent attempts them: a directory with instruction.md,
// task.toml, environment/ and tests/ is a task and its grader in one.
//
// A workspace is a copy of a task's environment for one attempt, in a mount namespace of
// this machine or in a container. The package prepares it, says how commands run in it, and
// reads the reward that the task's tests leave there. It starts no agent and no tests: package
// agent does, so that they end with their worker.
//
// Guarantees: what a workspace can't be given, such as an image's packages without a
// container, is refused by the name of its key or line before anything runs; a reward
// comes from files that the tests wrote after the agent had ended; and nothing of a
// workspace outlives the next one on the same machine, also when a worker was killed.
package harbor
