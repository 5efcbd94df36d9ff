// Package worker is the command line of a fleet: each of its processes is one of
// the subcommands cpu, gpu, sampler, gateway, migrate and health, configured by
// flags or environment variables (docs/processes.md).
//
// The command fulgurite-worker is nothing but [Main] with the agents that come with
// Fulgurite. A program of one's own that calls Main with other functions is the same
// command with these, and may take its place in a fleet or run beside it:
//
//	func main() { worker.Main(agent.Registry{"mine": mine}) }
//
// A SIGTERM or SIGINT drains: the process takes on nothing new, finishes what it
// has begun within --drain, lets go of its lease and ends with code 0. A second
// one ends it at once. Being killed loses nothing either; it only takes the
// others the seconds until they notice.
//
// Exit codes are 0 after a drain, 1 when something failed, 2 for bad usage. The
// package is no library for processes of another kind: it never brings the embedded
// Temporal server, and it exports Main alone.
package worker
