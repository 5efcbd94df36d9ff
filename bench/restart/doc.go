// Command restart measures what the death of a whole `fulgurite dev` costs a run. It
// kills the process (SIGKILL, with its process group) at random moments while a run
// trains, starts it again at once on the same directory, and waits for the next progress.
//
//	make build && go run ./bench/restart -kills 20 -agents func
//	go build -o bin/calc-agent ./examples/calc/cmd/calc-agent
//	go run ./bench/restart -kills 20 -agents command
//
// Progress is a row that the run did not have before: a recorded model call, a finished
// attempt, a batch or a version. For each kill it prints three times: from the kill to
// the line "is up", from that line to the next progress, and from it to the next version.
// The last one matters because a single rollout that is not made again would hold up its
// whole step, which the first progress does not show. At the end it prints the median and
// the maximum of each time, and how long a step takes without kills. Work that was cut
// off has to be done again: an update begins from its beginning.
package main
