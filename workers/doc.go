// Package workers runs the code of Fulgurite in processes: it says which code polls
// which task queue, and it is the command line of a fleet.
//
// # Queues
//
// There are three queues, one function each. [Training] runs the workflows and the
// short activities that coordinate them. [Rollout] runs agents and graders on CPU
// machines. [TrainGPU] updates the policy, one activity at a time. A process may run
// any of them; the demo runs all three. The functions build workers and start nothing.
//
// # The command line
//
// [Main] has the subcommands cpu, gpu, sampler, gateway, tools, page, migrate, health and
// version, configured by flags or environment variables (docs/processes.md). The command
// fulgurite-worker is Main with the agents that come with Fulgurite. Your own program
// that calls Main with other functions is the same command with these. It may take the
// place of fulgurite-worker in a fleet, or run together with it:
//
//	func main() { workers.Main(agent.Registry{"mine": mine}) }
//
// A SIGTERM or SIGINT drains: the process takes on nothing new, finishes its work within
// --drain, gives up its lease and ends with code 0. A second signal ends it at once. A
// process that is killed loses nothing either; the others notice it within seconds.
//
// Exit codes are 0 after a drain, 1 when something failed, 2 for bad usage. The package
// never starts the embedded Temporal server.
package workers
