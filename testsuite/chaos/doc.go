// Command chaos kills a fleet of real processes while it trains, and proves that
// nothing was lost, nothing was done twice, and that the weights are the same
// bits as those of a run without faults. docs/chaos.md says what is killed and how it
// is checked.
//
//	go run ./testsuite/chaos -kills 100 -seed 1 -json chaos.json
//
// It needs the commands in -bin (make build), and PostgreSQL's programs unless
// -store is sqlite. Package processes starts the fleet and package checker checks the
// runs. The command itself decides which process to kill and when, restarts what
// ended, measures the times until progress, and compares the checker's figures with
// the product's own report.
//
// The exit code is 0 if every run came through unharmed, 1 if not, 2 for bad
// usage. With -expect-failure it is 0 only if recorded calls were sampled again
// and nothing else is wrong: what is to be seen without the journal.
//
// "chaos agent" is the agent that the runs train: it is one of the processes
// that die.
package main
