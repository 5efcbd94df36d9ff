package workers

import (
	"context"
	"io"
	"time"

	"github.com/alecthomas/kong"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/fulgurite/fulgurite/agent"
)

// KeepAliveEvery is the interceptor of Training's workers, at another interval.
func KeepAliveEvery(d time.Duration) interceptor.WorkerInterceptor { return &keepAlive{every: d} }

// What tests look at.
const (
	ExitFailed = exitFailed
	ExitUsage  = exitUsage
)

// Run executes one command line.
func Run(ctx context.Context, args []string, stderr io.Writer) int {
	return run(ctx, agent.Registry{}, args, stderr)
}

// Options are the options of a worker.
func Options(t Tuning) worker.Options { return t.options() }

// Parse reads a command line.
func Parse(args []string, stderr io.Writer) (*kong.Context, error) { return parse(args, stderr) }
