// Package harbor reads tasks in Harbor's format
// (https://www.harborframework.com/docs/tasks) and makes the workspaces in which agents
// attempt them. In this format, a directory with instruction.md, task.toml, environment/
// and tests/ is both a task and its grader.
//
// A workspace is a copy of a task's environment for one attempt, in a mount namespace of
// this machine or in a container. The package prepares the workspace, says how commands
// run in it, and reads the reward that the task's tests write there. It starts neither
// agents nor tests: package agent does, so that they end together with their worker.
//
// Guarantees: if a workspace can't provide something, such as an image's packages without
// a container, the task is refused before anything runs, with the name of the key or
// line. A reward comes from files that the tests wrote after the agent had ended. Nothing
// of a workspace exists longer than until the next workspace on the same machine is
// opened, even if a worker was killed.
package harbor
