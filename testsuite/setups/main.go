package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
)

// options are the command-line options.
type options struct {
	bin  string
	only *regexp.Regexp
	jobs int
	keep bool
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
	flags := flag.NewFlagSet("setups", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var o options
	flags.StringVar(&o.bin, "fulgurite", filepath.Join("bin", "fulgurite"), "the tool to test")
	only := flags.String("only", "", "regular expression of the setups to run")
	flags.IntVar(&o.jobs, "jobs", 4, "how many setups to run at once")
	flags.BoolVar(&o.keep, "keep", false, "keep the directory of the setups")
	if err := flags.Parse(args); err != nil {
		return exitUsage
	}
	var err error
	if o.only, err = regexp.Compile(*only); err == nil {
		o.bin, err = filepath.Abs(o.bin)
	}
	if err != nil {
		fmt.Fprintln(stderr, "setups:", err)
		return exitUsage
	}
	failed, err := o.all(ctx, stdout)
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "setups:", err)
		return exitFailed
	case failed > 0:
		return exitFailed
	}
	return 0
}

// result is the outcome of a setup.
type result struct {
	seconds time.Duration
	wrong   []string // empty if all is as claimed
}

// all runs the selected setups and prints the results.
func (o options) all(ctx context.Context, stdout io.Writer) (failed int, err error) {
	dir, err := os.MkdirTemp("", "fulgurite-setups-")
	if err != nil {
		return 0, err
	}
	if o.keep {
		fmt.Fprintln(stdout, "The setups are in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	var list []setup
	for _, s := range setups() {
		if o.only.MatchString(s.name) {
			list = append(list, s)
		}
	}
	env, err := newTestEnv(ctx, o.bin, dir)
	if err != nil {
		return 0, err
	}
	defer env.close()
	results := make([]result, len(list))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.jobs)
	for i, s := range list {
		group.Go(func() error {
			began := time.Now()
			wrong, err := env.check(ctx, s)
			results[i] = result{time.Since(began), wrong}
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	return report(stdout, list, results), nil
}

// report prints a table and counts the setups of which something is not as claimed.
func report(out io.Writer, list []setup, results []result) (failed int) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "setup\tfound by\ttrained\tseconds\tverdict")
	for i, s := range list {
		word := "ok"
		if len(results[i].wrong) > 0 {
			word = "WRONG"
			failed++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.1f\t%s\n", s.name, s.finder(), s.train, results[i].seconds.Seconds(), word)
	}
	table.Flush()
	for i, s := range list {
		for _, text := range results[i].wrong {
			fmt.Fprintf(out, "\n%s: %s\n", s.name, strings.TrimSpace(text))
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", len(list)-failed, failed)
	return failed
}
