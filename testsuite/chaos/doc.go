// Command chaos kills a fleet of real processes while it trains, and proves that
// nothing was lost, nothing was done twice, and that the weights are the same
// bits as those of a run that nobody disturbed. docs/chaos.md says what is killed
// and how it is judged.
//
//	go run ./testsuite/chaos -kills 100 -seed 1 -json chaos.json
//
// It needs the commands in -bin (make build), and PostgreSQL's programs unless
// -store is sqlite. The judge is package checker; the fleet is package fleet.
// What is here decides whom to kill and when, starts again what ended, measures
// how long a run stands still, and compares the judge's figures with those that
// the product reports about itself.
//
// The exit code is 0 if every run came through unharmed, 1 if not, 2 for bad
// usage. With -expect-failure it is 0 only if recorded calls were sampled again
// and nothing else is wrong: what is to be seen without the journal.
//
// "chaos agent" is the agent that the runs train: it is one of the processes
// that die.
package main
