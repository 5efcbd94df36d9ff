package worker

import (
	"context"
	"io"

	"github.com/alecthomas/kong"

	"github.com/fulgurite/fulgurite/agent"
)

// What tests look at.
const (
	ExitFailed = exitFailed
	ExitUsage  = exitUsage
	ServingKey = servingKey
)

// Run executes one command line.
func Run(ctx context.Context, args []string, stderr io.Writer) int {
	return run(ctx, agent.Registry{}, args, stderr)
}

// Parse reads a command line.
func Parse(args []string, stderr io.Writer) (*kong.Context, error) { return parse(args, stderr) }
