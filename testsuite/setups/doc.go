// Command setups checks `fulgurite plan` and `fulgurite try` on setups
// that can't learn: what is certain to make `fulgurite train` fail or learn nothing
// in its first step, plan refuses where it can be known without running, and else try
// finds, says, and ends with 1. Setups that learn pass both, also where something is
// only likely to stand in the way.
//
// It runs the real commands on a directory for each setup, compares exit codes and
// words, and for some really trains, to show that the outcome is right. It is no test
// of training, and needs python3 and the tool that `make build` makes.
package main
