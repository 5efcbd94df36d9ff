// Command restart measures what the death of a whole `fulgurite dev` costs a run. It
// kills the process (SIGKILL, with its process group) at random moments while a run
// trains, starts it again at once on the same directory, and waits for the next progress.
//
//	make build && go run ./bench/restart -kills 20 -agents func
//	go build -o bin/calc-agent ./examples/calc/cmd/calc-agent
//	go run ./bench/restart -kills 20 -agents command
//
// Progress is a row that the run did not have before: a recorded model call, a finished
// attempt, a batch or a version. For each kill it prints three times: from the kill to
// the line "is up", from that line to the next progress, and from it to the next version.
// The last one matters because a single rollout that is not made again would hold up its
// whole step, which the first progress does not show. At the end it prints the median and
// the maximum of each time, and how long a step takes without kills. Work that was cut
// off has to be done again: an update begins from its beginning.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the store's own driver
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kills := flag.Int("kills", 20, "how often the process is killed")
	agents := flag.String("agents", "func", "what the run's agents are: func or command")
	thought := flag.Duration("thought", 0, "how long a command agent waits before it begins")
	bin := flag.String("bin", "bin", "directory of fulgurite and calc-agent")
	seed := flag.Uint64("seed", 1, "seed of the moments of the kills")
	keep := flag.Bool("keep", false, "keep the state, and say where it lies")
	flag.Parse()
	work, err := os.MkdirTemp("", "restart-")
	if err != nil {
		return err
	}
	if *keep {
		fmt.Println("state:", work)
	} else {
		defer func() { _ = os.RemoveAll(work) }()
	}
	binaries, err := filepath.Abs(*bin)
	if err != nil {
		return err
	}
	p := process{tool: filepath.Join(binaries, "fulgurite"), dir: filepath.Join(work, "state")}
	spec, err := writeSpec(work, *agents, filepath.Join(binaries, "calc-agent"), *thought)
	if err != nil {
		return err
	}
	defer p.kill()
	if err := p.start(ctx); err != nil {
		return err
	}
	if err := p.train(ctx, spec); err != nil {
		return err
	}
	moments := rand.New(rand.NewPCG(*seed, 0))
	usual, err := p.undisturbed(ctx)
	if err != nil {
		return err
	}
	var up, on, whole, steps []time.Duration
	for i := range *kills {
		// The moment is random within the time of about two steps.
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500*time.Millisecond + time.Duration(moments.Int64N(int64(2500*time.Millisecond)))):
		}
		p.kill()
		before, err := p.count(ctx)
		if err != nil {
			return err
		}
		killed := time.Now()
		if err := p.start(ctx); err != nil {
			return err
		}
		ready := time.Now()
		after, err := p.progress(ctx, before, anything)
		if err != nil {
			return err
		}
		ended, err := p.progress(ctx, before, step)
		if err != nil {
			return err
		}
		up, on, whole = append(up, ready.Sub(killed)), append(on, max(0, after.at.Sub(ready))), append(whole, after.at.Sub(killed))
		steps = append(steps, ended.at.Sub(ready))
		fmt.Printf("kill %2d: up after %5.2f s; then progress (%s) after %5.2f s, the step's end after %5.2f s\n",
			i+1, up[i].Seconds(), after.difference(before), on[i].Seconds(), steps[i].Seconds())
	}
	fmt.Printf("%d kills, %s agents; a step that nobody disturbs takes %.2f s\n", *kills, *agents, usual.Seconds())
	fmt.Printf("%-24s %9s  %9s\n", "", "median", "greatest")
	for _, row := range []struct {
		name string
		of   []time.Duration
	}{{"kill to up", up}, {"up to progress", on}, {"kill to progress", whole}, {"up to the step's end", steps}} {
		fmt.Printf("%-24s %7.2f s  %7.2f s\n", row.name, median(row.of).Seconds(), slices.Max(row.of).Seconds())
	}
	return nil
}

// undisturbed returns the median time of five steps without kills.
func (p *process) undisturbed(ctx context.Context) (time.Duration, error) {
	last, err := p.progress(ctx, count{versions: 1}, step)
	var took []time.Duration
	for range 5 {
		if err != nil {
			return 0, err
		}
		var next count
		next, err = p.progress(ctx, last, step)
		took = append(took, next.at.Sub(last.at))
		last = next
	}
	return median(took), err
}

func median(of []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// runName is the name of the run.
const runName = "restart"

// specification is a run that is longer than all kills together. Its steps are short, so
// that progress shows soon. Its agents compute nothing else, so that the stack alone
// determines the times.
const specification = `name: %s
seed: 7
model:
  warm_start: {demonstrations: arithmetic, updates: 150, batch: 32}
agent:
%s
  limits: {calls: 8, seconds: 60}
tasks: {train: "arithmetic:train:256", gate: "arithmetic:gate:16", test: "arithmetic:test:16"}
grader: {type: exact}
training: {steps: 100000, tasks_per_step: 8, samples_per_task: 4, keep: {last: 2}}
evaluation: {every: 10}
`

// writeSpec writes the spec of a run with the given kind of agents.
func writeSpec(dir, agents, command string, thought time.Duration) (string, error) {
	var agent string
	switch agents {
	case "func":
		agent = "  func: calculator"
	case "command":
		agent = fmt.Sprintf("  command: [/bin/sh, -c, 'sleep %g; exec %s']", thought.Seconds(), command)
	default:
		return "", fmt.Errorf("-agents %s: want func or command", agents)
	}
	path := filepath.Join(dir, "spec.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, specification, runName, agent), 0o644)
}

// process is the `fulgurite dev` that is measured, and its directory.
type process struct {
	tool, dir string
	cmd       *exec.Cmd
}

// start starts `fulgurite dev` and returns when it says that it is up.
func (p *process) start(ctx context.Context) error {
	p.cmd = exec.Command(p.tool, "dev", "--dir", p.dir, "--port", "0", "--ui-port", "0", "--gateway-port", "0")
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "is up.") {
				up <- nil
				_, _ = io.Copy(io.Discard, out) // to its end
				return
			}
		}
		up <- errors.New("fulgurite dev ended before it was up")
	}()
	select {
	case err := <-up:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends the process and whatever it started that is still of its group.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	_ = p.cmd.Wait()                                      // "signal: killed"
	p.cmd = nil
}

// train starts the run.
func (p *process) train(ctx context.Context, spec string) error {
	c := exec.CommandContext(ctx, p.tool, "train", "--dir", p.dir, "--detach", spec)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("train: %w: %s", err, out)
	}
	return nil
}

// count is how many rows the run has.
type count struct {
	calls, attempts, batches, versions int
	at                                 time.Time
}

// difference says which number grew.
func (c count) difference(from count) string {
	switch {
	case c.calls > from.calls:
		return "call"
	case c.attempts > from.attempts:
		return "attempt"
	case c.batches > from.batches:
		return "batch"
	}
	return "version"
}

func anything(now, before count) bool {
	return now.calls > before.calls || now.attempts > before.attempts || now.batches > before.batches || now.versions > before.versions
}

func step(now, before count) bool { return now.versions > before.versions }

const countRows = `SELECT (SELECT count(*) FROM calls WHERE run = ?1),
	(SELECT count(*) FROM attempts WHERE run = ?1 AND outcome <> ''),
	(SELECT count(*) FROM batches WHERE run = ?1),
	(SELECT count(*) FROM versions WHERE run = ?1)`

// count counts the rows in the store while the measured process writes it.
func (p *process) count(ctx context.Context) (c count, err error) {
	db, err := p.open()
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return read(ctx, db)
}

func (p *process) open() (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.Join(p.dir, "fulgurite.db")+"?_pragma=busy_timeout(10000)&_pragma=query_only(1)")
}

func read(ctx context.Context, db *sql.DB) (c count, err error) {
	err = db.QueryRowContext(ctx, countRows, runName).Scan(&c.calls, &c.attempts, &c.batches, &c.versions)
	c.at = time.Now()
	return c, err
}

// progressTimeout is how long progress may take before the benchmark gives up.
const progressTimeout = 3 * time.Minute

// progress waits until the number of rows is as wanted.
func (p *process) progress(ctx context.Context, before count, wanted func(now, before count) bool) (count, error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	db, err := p.open()
	if err != nil {
		return count{}, err
	}
	defer func() { _ = db.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, err := read(ctx, db)
		if err != nil {
			return now, fmt.Errorf("read the store: %w", err)
		}
		if wanted(now, before) {
			return now, nil
		}
		select {
		case <-ctx.Done():
			return now, fmt.Errorf("no progress within %s: %w", progressTimeout, ctx.Err())
		case <-tick.C:
		}
	}
}
