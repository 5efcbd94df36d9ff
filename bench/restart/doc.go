// Command restart measures what a death of a whole `fulgurite dev` costs a run:
// it kills the process (SIGKILL, with its process group) at random moments while
// a run trains, starts it again on the same directory at once, and waits for the
// next progress.
//
//	make build && go run ./bench/restart -kills 20 -agents func
//	go build -o bin/calc-agent ./examples/calc/cmd/calc-agent
//	go run ./bench/restart -kills 20 -agents command
//
// Progress is a row that the run did not have: a recorded model call, a finished
// attempt, a batch or a version. For each kill it prints the time from the kill
// to the line "is up", from that line to the next progress, and to the next
// version: one rollout that nobody runs again holds up its whole step, which the
// first progress does not show. Then come median and greatest of each, and how
// long a step takes that nobody disturbs. What was cut off has to be done again:
// an update begins from its beginning.
package main
