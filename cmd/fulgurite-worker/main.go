// Command fulgurite-worker is the fleet: each process of it is one of its
// subcommands, configured by flags or environment variables. Package worker holds
// them all, so that others can make the same command with agents of their own.
package main

import (
	"github.com/fulgurite/fulgurite/internal/builtin"
	"github.com/fulgurite/fulgurite/workers"
)

func main() { workers.Main(builtin.Agents()) }
