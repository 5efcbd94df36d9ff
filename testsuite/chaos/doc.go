// Command chaos kills processes of a real fleet while it trains. It proves that nothing
// was lost, that nothing was done twice, and that the weights have the same bits as those
// of a run without faults. docs/chaos.md describes what is killed and how the outcome is
// checked.
//
//	go run ./testsuite/chaos -kills 100 -seed 1 -json chaos.json
//
// It needs the commands in -bin (make build), and PostgreSQL's programs unless -store is
// sqlite. Package processes starts the fleet, and package checker checks the runs. The
// command itself decides which process to kill and when, restarts processes that have
// ended, measures the times until progress, and compares the checker's figures with the
// product's own report.
//
// The exit code is 0 if every run is sound, 1 if not, and 2 for wrong usage. With
// -expect-failure it is 0 only if recorded calls were sampled again and nothing else is
// wrong, which is the expected result without the journal.
//
// "chaos agent" is the agent that the runs train. It is one of the processes that die.
package main
