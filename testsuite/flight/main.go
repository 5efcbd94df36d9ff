// Command flight measures a fleet that has a thousand rollouts in flight. Its agents are
// commands that sleep and call no model, and its processes are those of a cluster on one
// machine, with PostgreSQL.
//
//	make build && go run ./testsuite/flight -runs 4 -rollouts 1000 -agents 1000 -sleep 30s
//
// The runs are evaluations that go on at once, because one has at most 256 rollouts in flight.
// It prints how many rollouts ended and how, the rate, how long agents waited from being
// scheduled to their start, and what each process took of memory and processor. The exit code
// is 1 if a rollout is missing or an agent was started twice.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// samples is how many rollouts a task has.
const samples = 4

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var b bench
	flag.IntVar(&b.runs, "runs", 4, "how many runs there are at once")
	flag.IntVar(&b.rollouts, "rollouts", 1000, "how many rollouts a run has, a multiple of 4")
	flag.IntVar(&b.agents, "agents", 1000, "how many agents run at once, on both CPU workers together")
	flag.DurationVar(&b.sleep, "sleep", 30*time.Second, "how long an agent sleeps")
	flag.StringVar(&b.sandbox, "sandbox", "none", "agent.sandbox of the spec")
	flag.StringVar(&b.bin, "bin", "bin", "directory of the commands")
	flag.Parse()
	if err := b.measure(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "flight:", err)
		os.Exit(1)
	}
}

type bench struct {
	runs             int
	rollouts, agents int
	sleep            time.Duration
	sandbox, bin     string
	dir              string
	fleet            *processes.Fleet
}

func (b *bench) measure(ctx context.Context) (err error) {
	// Not below /tmp, which an isolated agent does not see.
	if b.dir, err = os.MkdirTemp(".", ".flight-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	agents := []string{"--concurrency", strconv.Itoa((b.agents + 1) / 2)}
	b.fleet, err = processes.Start(ctx, processes.Options{
		Dir: b.dir, Bin: b.bin, Arguments: map[processes.Role][]string{processes.CPU1: agents, processes.CPU2: agents},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.fleet.Close()) }()
	spec, err := b.write()
	if err != nil {
		return err
	}
	db, err := pgx.Connect(ctx, b.fleet.Store)
	if err != nil {
		return fmt.Errorf("connect to the store: %w", err)
	}
	defer func() { _ = db.Close(context.WithoutCancel(ctx)) }()

	use := newUsage(b.fleet)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { use.watch(ended) })
	failed := b.evaluate(ctx, spec)
	close(ended)
	watching.Wait()
	if failed != nil {
		return failed
	}
	err = b.account(ctx, db)
	if failed := b.waits(ctx); failed != nil {
		return errors.Join(err, failed)
	}
	use.print()
	return err
}

// evaluate makes all runs, and returns when they have ended.
func (b *bench) evaluate(ctx context.Context, spec string) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range b.runs {
		group.Go(func() error {
			command := exec.CommandContext(ctx, filepath.Join(b.bin, "fulgurite"), "evaluate", "--name", fmt.Sprintf("flight-%d", i+1), spec)
			command.Env = append(os.Environ(), "FULGURITE_STORE="+b.fleet.Store, "FULGURITE_BLOBS="+b.fleet.Blobs, "TEMPORAL_ADDRESS="+b.fleet.Temporal)
			if out, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("evaluate: %w: %s", err, out)
			}
			return nil
		})
	}
	return group.Wait()
}

// write writes the spec and its tasks, and returns the spec's path.
func (b *bench) write() (string, error) {
	var tasks strings.Builder
	for i := range b.rollouts / samples {
		fmt.Fprintf(&tasks, `{"id": "%d", "input": "task %d", "answer": "done"}`+"\n", i, i)
	}
	spec := fmt.Sprintf(`agent: {command: [/bin/sh, -c, "echo $$ >>started; sleep %g; echo done"], sandbox: %s, directory: %q, limits: {seconds: %g}}
tasks: {gate: %q}
grader: {type: exact}
sampling: {server: {type: openai, urls: ["http://127.0.0.1:9"], model: none}}
evaluation: {samples: %d}
`, b.sleep.Seconds(), b.sandbox, filepath.Join(b.dir, "work"), (b.sleep + time.Hour).Seconds(), filepath.Join(b.dir, "tasks.jsonl"), samples)
	if b.sandbox != "none" {
		spec = strings.Replace(spec, "echo $$ >>started; ", "", 1) // the directory can't be written there
	}
	path := filepath.Join(b.dir, "spec.yaml")
	return path, errors.Join(
		os.Mkdir(filepath.Join(b.dir, "work"), 0o777),
		os.WriteFile(filepath.Join(b.dir, "tasks.jsonl"), []byte(tasks.String()), 0o600),
		os.WriteFile(path, []byte(spec), 0o600))
}

// account prints what came of the rollouts, and returns an error if one of them is missing.
func (b *bench) account(ctx context.Context, db *pgx.Conn) error {
	var all, completed, again, most int
	var seconds float64
	err := db.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE outcome = 'completed'), count(*) FILTER (WHERE attempt > 1), (max(ended) - min(begun)) / 1e9 FROM attempts`).Scan(&all, &completed, &again, &seconds)
	if err == nil {
		err = db.QueryRow(ctx, `SELECT max(n) FROM (SELECT sum(d) OVER (ORDER BY t, d) AS n FROM (SELECT begun AS t, 1 AS d FROM attempts UNION ALL SELECT ended, -1 FROM attempts) x) y`).Scan(&most)
	}
	if err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	started := all
	if b.sandbox == "none" {
		lines, err := os.ReadFile(filepath.Join(b.dir, "work", "started"))
		if err != nil {
			return err
		}
		started = strings.Count(string(lines), "\n")
	}
	want := b.runs * b.rollouts
	fmt.Printf("%d rollouts of agents that sleep %s, %d agents started, %d attempts completed, %d attempted again\n", want, b.sleep, started, completed, again)
	fmt.Printf("in %.1f s: %.1f rollouts/s; at most %d in flight; at the best %.1f rollouts/s\n", seconds, float64(completed)/seconds, most, float64(b.agents)/b.sleep.Seconds())
	if completed != want || started != want || all != want {
		return fmt.Errorf("%d rollouts, %d attempts, %d completed, %d agents started", want, all, completed, started)
	}
	return nil
}

// waits prints how long activities that run agents waited from being scheduled to their start,
// by the histories of their workflows. An activity that waits for a free agent is in it only
// if the wave before has ended: the first agents of the run are printed apart.
func (b *bench) waits(ctx context.Context) error {
	temporal, err := client.Dial(client.Options{HostPort: b.fleet.Temporal})
	if err != nil {
		return fmt.Errorf("dial Temporal: %w", err)
	}
	defer temporal.Close()
	type wait struct{ scheduled, waited time.Duration }
	var all []wait
	var origin time.Time
	var page []byte
	for {
		found, err := temporal.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Query: `WorkflowType = "EvaluationWorkflow"`, NextPageToken: page})
		if err != nil {
			return fmt.Errorf("list workflows: %w", err)
		}
		for _, execution := range found.Executions {
			scheduled := map[int64]time.Time{}
			events := temporal.GetWorkflowHistory(ctx, execution.Execution.WorkflowId, execution.Execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
			for events.HasNext() {
				event, err := events.Next()
				if err != nil {
					return fmt.Errorf("read history: %w", err)
				}
				if a := event.GetActivityTaskScheduledEventAttributes(); a != nil && a.ActivityType.Name == "RunAgent" {
					at := event.EventTime.AsTime()
					scheduled[event.EventId] = at
					if origin.IsZero() || at.Before(origin) {
						origin = at
					}
				}
				if a := event.GetActivityTaskStartedEventAttributes(); a != nil {
					if at, ok := scheduled[a.ScheduledEventId]; ok {
						all = append(all, wait{at.Sub(origin), event.EventTime.AsTime().Sub(at)})
					}
				}
			}
		}
		if page = found.NextPageToken; len(page) == 0 {
			break
		}
	}
	slices.SortFunc(all, func(a, b wait) int { return cmp.Compare(a.scheduled, b.scheduled) })
	for _, part := range []struct {
		name  string
		waits []wait
	}{{"the first agents", all[:min(b.agents, len(all))]}, {"the others", all[min(b.agents, len(all)):]}} {
		var waited []float64
		for _, w := range part.waits {
			waited = append(waited, w.waited.Seconds())
		}
		if slices.Sort(waited); len(waited) > 0 {
			at := func(share float64) float64 { return waited[min(len(waited)-1, int(share*float64(len(waited))))] }
			fmt.Printf("from scheduled to started, %s: p50 %.3f s, p99 %.3f s, max %.3f s, of %d\n", part.name, at(0.5), at(0.99), at(1), len(waited))
		}
	}
	return nil
}

// usage is what processes took, by role. That of PostgreSQL is of all its processes.
type usage struct {
	fleet  *processes.Fleet
	begun  time.Time
	took   time.Duration
	first  map[processes.Role]float64 // seconds of processor at the begin
	last   map[processes.Role]float64
	memory map[processes.Role]float64 // most MiB at once
	agents int                        // most processes below the CPU workers at once
	// busy is the seconds that the machine's processors were busy, and at the begin.
	busy, busyFirst float64
}

func newUsage(f *processes.Fleet) *usage {
	u := &usage{fleet: f, begun: time.Now(), last: map[processes.Role]float64{}, memory: map[processes.Role]float64{}}
	u.sample()
	u.first, u.busyFirst = maps.Clone(u.last), u.busy
	return u
}

// watch samples every second until the run has ended.
func (u *usage) watch(ended <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ended:
			u.sample()
			u.took = time.Since(u.begun)
			return
		case <-ticker.C:
			u.sample()
		}
	}
}

// sample reads /proc. Of the CPU workers it takes the workers alone, without their agents.
func (u *usage) sample() {
	tree := children()
	agents := 0
	for _, role := range u.fleet.Roles() {
		pid := u.fleet.PID(role)
		seconds, memory := ofProcess(pid)
		if role == processes.Postgres {
			for _, child := range tree[pid] {
				s, m := ofProcess(child)
				seconds, memory = seconds+s, memory+m
			}
		}
		if role == processes.CPU1 || role == processes.CPU2 {
			agents += len(tree[pid])
		}
		u.last[role], u.memory[role] = max(u.last[role], seconds), max(u.memory[role], memory)
	}
	u.agents, u.busy = max(u.agents, agents), busy()
}

func (u *usage) print() {
	fmt.Printf("at most %d agents' processes at once\n\n| process | MiB at most | processor, share of a core |\n| --- | ---: | ---: |\n", u.agents)
	rest := u.busy - u.busyFirst
	for _, role := range u.fleet.Roles() {
		took := u.last[role] - u.first[role]
		rest -= took
		fmt.Printf("| %s | %.0f | %.2f |\n", role, u.memory[role], took/u.took.Seconds())
	}
	fmt.Printf("| agents, their shims, and all else | | %.2f |\n", rest/u.took.Seconds())
}

// busy returns the seconds that processors of the machine were busy since it started.
func busy() float64 {
	text, _ := os.ReadFile("/proc/stat") // every Linux has it
	line, _, _ := strings.Cut(string(text), "\n")
	sum := 0.0
	for i, field := range strings.Fields(line) {
		if v, err := strconv.ParseFloat(field, 64); err == nil && i != 4 && i != 5 && i < 9 { // idle, and waiting for disks
			sum += v
		}
	}
	return sum / ticks
}

// ticks is the unit of times of processors, a second, on every Linux.
const ticks = 100

// children returns the processes that each process has started.
func children() map[int][]int {
	out := map[int][]int{}
	all, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, path := range all {
		pid, fields := stat(path)
		if len(fields) > 1 {
			if parent, err := strconv.Atoi(fields[1]); err == nil {
				out[parent] = append(out[parent], pid)
			}
		}
	}
	return out
}

// stat returns the fields of a process's stat after its name.
func stat(path string) (pid int, fields []string) {
	text, err := os.ReadFile(filepath.Join(path, "stat"))
	if err != nil {
		return 0, nil // it has ended
	}
	pid, _ = strconv.Atoi(filepath.Base(path)) // a number, by the pattern
	return pid, strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

// ofProcess returns the seconds of processor that a process took, and its proportional share
// of memory in MiB.
func ofProcess(pid int) (seconds, memory float64) {
	path := filepath.Join("/proc", strconv.Itoa(pid))
	if _, fields := stat(path); len(fields) > 12 {
		user, _ := strconv.ParseFloat(fields[11], 64) // numbers, by proc(5)
		system, _ := strconv.ParseFloat(fields[12], 64)
		seconds = (user + system) / ticks
	}
	rollup, _ := os.ReadFile(filepath.Join(path, "smaps_rollup")) // it may have ended
	for line := range strings.Lines(string(rollup)) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ := strconv.ParseFloat(strings.Fields(value)[0], 64)
			memory = kb / 1024
		}
	}
	return seconds, memory
}
