package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// options are the command-line options.
type options struct {
	kills         int
	seed          uint64
	json          string
	store         string
	journal       string
	every         time.Duration
	think         time.Duration
	judge         string // URL, once it is up
	bin, dir      string
	roles         string
	scenarios     []scenario
	detect        bool
	expectFailure bool
	limit         time.Duration
}

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == agentCommand {
		m, err := parseAgentOptions(args[1:])
		if err == nil {
			err = solve(ctx, m, os.Stdin, stdout)
		}
		if err != nil {
			fmt.Fprintln(stderr, "chaos agent:", err)
			return exitFailed
		}
		return 0
	}
	o, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitUsage
	}
	s := &suite{options: o, out: stdout}
	err = s.run(ctx)
	if err != nil {
		fmt.Fprintln(stderr, "chaos:", err)
		return exitFailed
	}
	return 0
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("chaos", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.kills, "kills", 100, "how many processes to kill (with -expect-failure, at least)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the plan: who, when, for how long")
	f.StringVar(&o.json, "json", "", "file to write the report to")
	f.StringVar(&o.store, "store", "postgres", "postgres or sqlite, for the store and for Temporal")
	f.StringVar(&o.journal, "journal", "on", "on, or off: the gateway then samples again what an earlier attempt recorded")
	f.DurationVar(&o.every, "every", 3*time.Second, "mean time from one fault to the next")
	f.DurationVar(&o.think, "thought", 250*time.Millisecond, "how long an agent thinks before each of its calls")
	f.StringVar(&o.bin, "bin", "bin", "directory of fulgurite and fulgurite-worker")
	f.StringVar(&o.dir, "dir", "", "directory of all state, kept afterwards (default: a temporary one, removed unless something is wrong)")
	f.StringVar(&o.roles, "roles", "", "whom to kill, separated by commas (default: everybody)")
	chosen := f.String("scenarios", "", "scenarios of the runs, in turn, separated by commas (default: plain,judge,lag,critic; there are lora, band and stages, too)")
	f.BoolVar(&o.detect, "detect", true, "measure first how long it takes until a hang is noticed")
	f.BoolVar(&o.expectFailure, "expect-failure", false, "succeed only if recorded calls were sampled again and nothing else is wrong")
	f.DurationVar(&o.limit, "limit", time.Hour, "how long everything may take")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", f.Arg(0))
	case o.kills < 0 || o.every <= 0:
		return o, errors.New("-kills and -every must be positive")
	case !slices.Contains([]string{"postgres", "sqlite"}, o.store):
		return o, fmt.Errorf("-store %q: want postgres or sqlite", o.store)
	case !slices.Contains([]string{"on", "off"}, o.journal):
		return o, fmt.Errorf("-journal %q: want on or off", o.journal)
	}
	var err error
	if o.scenarios, err = scenariosNamed(*chosen); err != nil {
		return o, err
	}
	_, err = o.victims()
	return o, err
}

// victims returns the roles to kill.
func (o options) victims() ([]processes.Role, error) {
	all := []processes.Role{processes.Gateway, processes.Sampler, processes.CPU1, processes.CPU2, processes.GPU, processes.Temporal, processes.Postgres}
	if o.store == "sqlite" {
		all = all[:len(all)-1]
	}
	if o.roles == "" {
		return all, nil
	}
	var chosen []processes.Role
	for name := range strings.SplitSeq(o.roles, ",") {
		if !slices.Contains(all, processes.Role(name)) {
			return nil, fmt.Errorf("-roles %q: there are %v", name, all)
		}
		chosen = append(chosen, processes.Role(name))
	}
	return chosen, nil
}
