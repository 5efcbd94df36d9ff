// Command fulgurite is the command-line tool. It runs the demo, runs a development stack
// in one process, and has the commands with which a person works with runs.
//
// The exit codes are: 0 for success; 1 if something failed or was found to be wrong; 2 if
// what was asked can't be done, so that nothing was begun: wrong usage, a bad spec, a run,
// version, attempt or file that is not there, or a refusal of the run; and 130 if a signal
// (Ctrl-C) came before the result. docs/json.md has the table. Interrupted work goes on later. `fulgurite dev` only ends by a signal, so its exit code
// is then 0. A second signal ends any command at once, with 130.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"os/user"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.temporal.io/api/serviceerror"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/shell"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store/blob"
)

func main() {
	if err := agent.Conceal(); err != nil { // from the agents that stacks, try and chat launch
		fmt.Fprintln(os.Stderr, "fulgurite:", err)
	}
	if err := needHome(); err != nil {
		fmt.Fprintln(os.Stderr, "fulgurite:", err)
	}
	t := terminal.New(os.Stdout, os.Stderr)
	os.Exit(run(interruptible(t.Err), os.Args[1:], t))
}

// needHome starts this program again with a HOME if it has none and its user has none
// either, as in a container with any user id. Libraries of the Temporal server ask os/user
// before main begins, and os/user keeps the answer that nobody is here.
func needHome() error {
	if os.Getenv("HOME") != "" { // first, so that os/user has not been asked yet
		return nil
	}
	if _, err := user.Current(); err == nil {
		return nil
	}
	program, err := os.Executable()
	if err == nil {
		err = os.Setenv("HOME", "/")
	}
	if err == nil {
		err = syscall.Exec(program, os.Args, os.Environ())
	}
	return fmt.Errorf("start again with a HOME: %w", err)
}

// endingLimit is how long a command may take to end after a signal until it says that a
// second one ends it at once.
const endingLimit = 2 * time.Second

// stillEnding is what an interrupted command says if it takes long to end.
const stillEnding = "fulgurite: still ending; a second Ctrl-C ends it at once"

// interruptible returns a context that the first signal ends. A second signal ends the
// process, because a command may be where it can't see the first one: in the middle of a
// file, or opening one that never answers.
func interruptible(errs io.Writer) context.Context {
	ctx, end := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		end()
		time.AfterFunc(endingLimit, func() { fmt.Fprintln(errs, stillEnding) })
		<-signals
		os.Exit(exitInterrupted)
	}()
	return ctx
}

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports SIGINT
)

// run executes one command line.
func run(ctx context.Context, args []string, t *terminal.Terminal) int {
	var c commands
	parser, err := kong.New(&c,
		kong.Name("fulgurite"),
		kong.Description("Durable reinforcement learning for LLM agents, on Temporal."),
		kong.UsageOnError(),
		kong.Writers(t.Out, t.Err),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(t),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintln(t.Err, "fulgurite:", err)
		return exitFailed
	}
	parsed, err := parser.Parse(rewritten(args))
	if err != nil {
		fmt.Fprintf(t.Err, "fulgurite: %v\nRun `fulgurite --help` for usage.\n", err)
		return exitUsage
	}
	c.Shared.UseRecords(recordsOf(parsed))
	if err = c.Shared.UseTorch(); err == nil {
		err = parsed.Run(&c.Shared)
	}
	if err != nil {
		return failed(ctx, c.Shared.Place(), t, err)
	}
	return 0
}

// recordsOf returns the records that a command line names.
func recordsOf(parsed *kong.Context) (r state.RecordFlags) {
	for _, flag := range parsed.Flags() {
		text, _ := parsed.FlagValue(flag).(string) // the two flags below are texts
		switch flag.Name {
		case "store":
			r.Store = text
		case "blobs":
			r.Blobs = text
		}
	}
	return r
}

// failed reports the error of a command, and returns the exit code. The error may come from
// a place that does not know where this command looks, so the commands in it are completed.
func failed(ctx context.Context, place shell.Place, t *terminal.Terminal, err error) int {
	var usage terminal.UsageError
	var faults *spec.Faults
	switch {
	case errors.As(err, &usage), errors.As(err, &faults), isUnknown(err):
		fmt.Fprintln(t.Err, "fulgurite:", place.Complete(err.Error()))
		return exitUsage
	case ctx.Err() != nil:
		return interrupted(t, err)
	default:
		fmt.Fprintln(t.Err, "fulgurite:", place.Complete(err.Error()))
		return exitFailed
	}
}

// isUnknown reports whether a run, a version or an attempt that the command line names is
// not on record, or has several policies of which it has to name one. A blob that is on
// record and was lost is a failure instead.
func isUnknown(err error) bool {
	return errors.Is(err, record.ErrNotFound) && !errors.Is(err, blob.ErrNotFound) || errors.Is(err, model.ErrJoint)
}

// interrupted reports an interruption. The command itself has already printed what
// happens to its work.
func interrupted(t *terminal.Terminal, err error) int {
	var cut *serviceerror.Canceled // as Temporal says it
	if !errors.Is(err, context.Canceled) && !errors.As(err, &cut) {
		fmt.Fprintln(t.Err, "fulgurite:", err)
	}
	return exitInterrupted
}
