// Command fulgurite-worker runs the processes of a fleet. Each subcommand is one kind of
// process, and is configured by flags or environment variables. Package workers holds the
// subcommands, so that other programs can offer the same command with their own agents.
package main

import (
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/workers"
)

func main() { workers.Main(builtin.Agents()) }
