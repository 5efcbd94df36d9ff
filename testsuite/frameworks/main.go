// Command frameworks runs the examples, as `make examples` does, and reports the outcome
// of each. It first runs the example's programs against fixed replies. If the example has
// a spec, it then makes a whole training run.
//
// A walk is one run of an example's program with the real launcher, forwarder and
// gateway. Its sampler gives the replies that example.yaml contains. The walk checks that
// the program accepts every reply, that no request is refused, that each call is recorded
// with its tokens, and that a second attempt is answered from that record.
//
// A training run uses `fulgurite train`. It checks that every attempt made calls, that
// tokens were trained, that rewards differed, and that the first update made the rewarded
// samples more probable.
//
// Folder clients beside the examples holds the clients of OpenAI and Anthropic to one
// account of the replies, by each API, whole and streamed.
//
// It installs nothing. .ci/examples does that.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/agent"
)

type cli struct {
	Names     []string `arg:"" optional:"" help:"Examples to run (default: all)."`
	Folder    string   `help:"Where the examples lie." default:"examples" type:"path"`
	Fulgurite string   `help:"The command that trains." default:"bin/fulgurite" type:"path"`
	Jobs      int      `help:"Most walks, or agents of a run, at once." default:"4"`
	WalkOnly  bool     `help:"Train nothing."`
	Show      bool     `help:"Print what the programs ask for."`

	// secondTries is a file that gets a line for each example that passed only at its second
	// try; empty for none.
	secondTries string
}

func main() {
	agent.ShimMain() // does not return where this process is to be an agent's shim
	var c cli
	c.secondTries = os.Getenv("SECOND_TRIES")
	kong.Parse(&c, kong.Description("Runs the examples and holds them to what they promise."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := c.run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// trainings is how many runs are trained at once: while one computes an update, the agents
// of the other have the processors.
const trainings = 2

// maxAgain is how many examples may need a second try.
const maxAgain = 2

// run runs the examples and prints a line for each. Those that fail are run once more and
// alone, since a slow machine should not turn away a change; what passes only then is
// noted.
func (c *cli) run(ctx context.Context, out io.Writer) (err error) {
	examples, err := readExamples(c.Folder, c.Names)
	if err != nil {
		return err
	}
	t := trainer{command: c.Fulgurite, agents: c.Jobs}
	defer func() { err = errors.Join(err, t.close()) }()
	failed, err := c.runAll(ctx, out, examples, &t)
	if len(failed) == 0 || len(failed) > maxAgain || ctx.Err() != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "once more, after: %v\n", err)
	t.try = "-again"
	for _, e := range failed {
		if _, err := c.runAll(ctx, out, []example{e}, &t); err != nil {
			return err
		}
		line := "passed only at the second try: example " + e.Name
		_, _ = fmt.Fprintln(out, line)
		if err := c.note(line); err != nil {
			return err
		}
	}
	return nil
}

// note adds a line to the file of second tries.
func (c *cli) note(line string) (err error) {
	if c.secondTries == "" {
		return nil
	}
	f, err := os.OpenFile(c.secondTries, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = fmt.Fprintln(f, line)
	return err
}

// runAll first runs the walks of the examples, several at once, and then trains the
// examples. It prints one line for each. If one fails, the others still run. It returns
// those that failed, with the reasons.
func (c *cli) runAll(ctx context.Context, out io.Writer, examples []example, t *trainer) ([]example, error) {
	walked := c.walk(ctx, examples)
	ended := make([]chan result, len(examples))
	for i := range ended {
		ended[i] = make(chan result, 1)
	}
	go func() {
		var group errgroup.Group
		group.SetLimit(trainings)
		for i, e := range examples {
			r := walked[i]
			if r.err != nil || e.Spec == "" || c.WalkOnly {
				ended[i] <- r
				continue
			}
			group.Go(func() error {
				ended[i] <- r.with(e.trainable(ctx, t))
				return nil
			})
		}
		_ = group.Wait() // results carry the errors
	}()
	var failed []example
	var reasons []error
	for i, e := range examples {
		r := <-ended[i]
		r.print(out, e.Name)
		if r.err != nil {
			failed = append(failed, e)
			reasons = append(reasons, fmt.Errorf("%s: %w", e.Name, r.err))
		}
	}
	return failed, errors.Join(reasons...)
}

// walk returns the result of all walks of each example.
func (c *cli) walk(ctx context.Context, examples []example) []result {
	results := make([]result, len(examples))
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(c.Jobs)
	for i, e := range examples {
		for number, w := range e.Walks {
			group.Go(func() error {
				r := walkTwice(ctx, e, number, w, c.Show)
				mu.Lock()
				defer mu.Unlock()
				results[i] = results[i].with(r)
				return nil
			})
		}
	}
	_ = group.Wait() // results carry the errors
	return results
}
