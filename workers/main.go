package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent"
)

// cli is the command line.
type cli struct {
	CPU     cpuCommand     `cmd:"" name:"cpu" help:"Run workflows, coordination, agents and graders."`
	GPU     gpuCommand     `cmd:"" name:"gpu" help:"Update policies, one update at a time."`
	Sampler samplerCommand `cmd:"" help:"Sample from versions, for gateways."`
	Gateway gatewayCommand `cmd:"" help:"Answer the model calls of agents, and serve promoted versions at /v1."`
	Tools   toolsCommand   `cmd:"" help:"Find paragraphs of a corpus for agents, over HTTP and MCP."`
	Page    pageCommand    `cmd:"" help:"Show the runs on a page in the browser, and act on them."`
	Migrate migrateCommand `cmd:"" help:"Make the store's tables and Temporal's search attributes."`
	Health  healthCommand  `cmd:"" help:"Ask a process whether it works, as a container's health check."`
	Version versionCommand `cmd:"" help:"Print what this program was built from and for."`
}

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// Main is the main function of a program whose cpu processes have these functions for
// agents. It executes the program's command line and ends the program. Call it first: code
// before it also runs in every agent's shim.
func Main(agents agent.Registry) {
	agent.ShimMain() // does not return if this process is to be an agent's shim
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, end := context.WithCancelCause(context.Background())
	context.AfterFunc(signalled, func() {
		stop() // a second signal then ends the process, even if the first is not yet noticed
		end(context.Cause(signalled))
	})
	code := run(ctx, agents, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// parse reads a command line. Nothing is started by it.
func parse(args []string, stderr io.Writer) (*kong.Context, error) {
	parser, err := kong.New(&cli{},
		kong.Name(program()),
		kong.Description("The processes of a Fulgurite fleet."),
		kong.Writers(os.Stdout, stderr),
		kong.Vars{"name": defaultName()},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		return nil, err
	}
	return parser.Parse(args)
}

// program returns the name by which this program was called.
func program() string { return filepath.Base(os.Args[0]) }

// run executes one command line.
func run(ctx context.Context, agents agent.Registry, args []string, stderr io.Writer) int {
	parsed, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "%[1]s: %[2]v\nRun `%[1]s --help` for usage.\n", program(), err)
		return exitUsage
	}
	parsed.Bind(agents)
	parsed.BindTo(ctx, (*context.Context)(nil))
	parsed.BindTo(stderr, (*io.Writer)(nil))
	var reported reportedError
	switch err := parsed.Run(); {
	case err == nil:
		return 0
	case errors.As(err, &reported):
		return exitFailed
	default:
		fmt.Fprintf(stderr, "%s: %v\n", program(), err)
		return exitFailed
	}
}

// reportedError is an error that was logged as the last thing that the process did.
type reportedError struct{ error }

// report logs what ended a process.
func report(log *zap.Logger, err error) error {
	if err == nil {
		log.Info("ended")
		return nil
	}
	log.Error("ended", zap.Error(err))
	return reportedError{err}
}
