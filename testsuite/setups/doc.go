// Command setups checks `fulgurite plan` and `fulgurite try` on setups that can't learn.
// Each of them certainly makes `fulgurite train` fail, or learn nothing in its first
// step. If that can be known without running, plan must refuse the setup. Otherwise try
// must find the problem, say so and exit with 1. Setups that learn must pass both
// commands, even if something may get in the way of learning.
//
// It runs the real commands on a directory for each setup and compares exit codes and
// texts. Some setups it really trains, to show that the claimed outcome is right. It does
// not test training itself. It needs python3 and the tool that `make build` makes.
package main
