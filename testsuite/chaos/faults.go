package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

const (
	// stallPause is for how long a run may make no progress before faults are held back
	// until it makes some. Otherwise the run might never finish.
	stallPause = 20 * time.Second
	// agentWait is how long a fault of a CPU worker waits for an agent in the middle of
	// its work, or for a reflector that is asked, and judgeWait for a judge.
	agentWait, judgeWait = 3 * time.Second, 10 * time.Second
)

// injectFaults injects faults until the run is complete or has had its share: enough
// must be left for the other scenarios.
func (s *suite) injectFaults(ctx context.Context, name string, c scenario) error {
	share := (s.kills + len(s.scenarios) - 1) / len(s.scenarios)
	for before := s.injected.total; !s.enough(ctx) && (s.expectFailure || s.injected.total-before < share); {
		f := s.faultPlan.next()
		over, err := s.waitFor(ctx, name, func(waited time.Duration) bool {
			if waited < f.after || s.monitor.idle() > stallPause {
				return false
			}
			switch {
			case c.traffic:
				return !s.learns(f.role) || waited > f.after+learningWait || s.learning(ctx, name)
			case c.search != "" && s.asksReflector(f.role) && s.injected.kills[f.role]%2 == 0:
				return waited > f.after+agentWait || s.searchServers.busy()
			case !strings.HasPrefix(string(f.role), "cpu"):
				return true
			case c.judge:
				return waited > f.after+judgeWait || s.judgeServer.Busy()
			}
			return waited > f.after+agentWait || s.agentMidway(ctx, name)
		})
		if over || err != nil {
			return err
		}
		if f.hang > 0 {
			err = s.hang(ctx, name, f)
		} else {
			err = s.kill(ctx, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asksReflector reports whether a role has to do with a reply of a reflector: a worker asks
// for it, and the store keeps it.
func (s *suite) asksReflector(role processes.Role) bool {
	return slices.Contains([]processes.Role{processes.CPU1, processes.CPU2, processes.Postgres}, role)
}

// enough reports whether there were as many kills as asked for. If a failure is
// expected, it must have shown itself too; the limit of the suite ends the search for it.
func (s *suite) enough(ctx context.Context) bool {
	if s.injected.total < s.kills || !s.expectFailure {
		return s.injected.total >= s.kills
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := s.db.RecordedAgain(ctx)
	return err == nil && n > 0
}

func (s *suite) kill(ctx context.Context, f fault) error {
	s.injected.kills[f.role]++
	s.injected.total++
	s.logf("kill %d of %d: %s", s.injected.total, s.kills, f.role)
	return s.faultInjector.kill(ctx, f.role, func() { s.monitor.killed(f.role, time.Now()) })
}

// hang suspends a process, at the longest until the run is complete.
func (s *suite) hang(ctx context.Context, name string, f fault) error {
	s.injected.hangs[f.role]++
	s.logf("%s hangs for %.1f s", f.role, f.hang.Seconds())
	resume, err := s.faultInjector.hang(f.role)
	if err != nil {
		return err
	}
	_, err = s.waitFor(ctx, name, func(waited time.Duration) bool { return waited >= f.hang })
	if e := resume(); err == nil {
		err = e
	}
	return err
}

// waitFor waits until a condition holds or the run is over.
func (s *suite) waitFor(ctx context.Context, name string, condition func(waited time.Duration) bool) (over bool, err error) {
	began := time.Now()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !condition(time.Since(began)) {
		if over, err = s.completed(ctx, name); over || err != nil {
			return over, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-tick.C:
		}
	}
	return false, nil
}

// agentMidway reports whether an agent has just got an answer and not yet finished.
func (s *suite) agentMidway(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := s.db.Midway(ctx, name, time.Now().Add(-s.think))
	return err == nil && n > 0
}

// faultInjector kills and suspends processes. It restarts a process that has ended at
// once, as a container engine does.
type faultInjector struct {
	fleet *processes.Fleet

	mu    sync.Mutex             // held while a process is killed or started
	ended map[processes.Role]int // by themselves, without being killed
	hangs map[processes.Role][]checker.Hang
	// pruned is when the pruner was found to have ended, zero while it runs.
	pruned time.Time
}

// pollEvery is how soon the end of a process is noticed.
const pollEvery = 100 * time.Millisecond

// Run restarts processes that end by themselves, until ctx ends.
func (k *faultInjector) Run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.step(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (k *faultInjector) step(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, role := range k.fleet.Roles() {
		if k.fleet.PID(role) != 0 || ctx.Err() != nil || role == processes.Pruner && !k.pruneAgain() {
			continue
		}
		k.ended[role]++
		if err := k.fleet.Restart(ctx, role); err != nil {
			return err
		}
	}
	return nil
}

// prunePause is the time between two executions of the pruner.
const prunePause = time.Second

// pruneAgain reports whether the pruner, which has ended, is to be started again.
func (k *faultInjector) pruneAgain() bool {
	if k.pruned.IsZero() {
		k.pruned = time.Now()
	}
	if time.Since(k.pruned) < prunePause {
		return false
	}
	k.pruned = time.Time{}
	return true
}

// endedBy returns how often a role's process ended without being killed.
func (k *faultInjector) endedBy(role processes.Role) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended[role]
}

// kill kills a process, with PostgreSQL all its children too, calls killed and restarts
// it.
func (k *faultInjector) kill(ctx context.Context, role processes.Role, killed func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	pids := k.childrenOf(role)
	err := k.fleet.Kill(role)
	for _, pid := range pids {
		err = errors.Join(err, ignoreGone(syscall.Kill(pid, syscall.SIGKILL)))
	}
	if err != nil {
		return fmt.Errorf("kill %s: %w", role, err)
	}
	killed()
	return k.fleet.Restart(ctx, role)
}

// hang suspends a process, with PostgreSQL all its children too, until resume is
// called.
func (k *faultInjector) hang(role processes.Role) (resume func() error, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if role == processes.Pruner && k.fleet.PID(role) == 0 { // it is between two executions
		if err := k.fleet.Restart(context.Background(), role); err != nil {
			return nil, err
		}
	}
	if err := k.fleet.Hang(role); err != nil {
		return nil, err
	}
	from := time.Now()
	pids := k.childrenOf(role)
	for _, pid := range pids {
		err = errors.Join(err, ignoreGone(syscall.Kill(pid, syscall.SIGSTOP)))
	}
	return func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		var all error
		for _, pid := range pids {
			all = errors.Join(all, ignoreGone(syscall.Kill(pid, syscall.SIGCONT)))
		}
		all = errors.Join(all, k.fleet.Resume(role))
		k.hangs[role] = append(k.hangs[role], checker.Hang{From: from, Until: time.Now()})
		return all
	}, err
}

// hangsOf returns the hangs of some roles.
func (k *faultInjector) hangsOf(roles ...processes.Role) []checker.Hang {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []checker.Hang
	for _, role := range roles {
		all = append(all, k.hangs[role]...)
	}
	return all
}

// childrenOf returns the child processes that are killed together with a role. Agents,
// which are children of workers, are not among them: the product itself has to end them.
func (k *faultInjector) childrenOf(role processes.Role) []int {
	if role != processes.Postgres {
		return nil
	}
	return children(k.fleet.PID(role))
}

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// fault is a kill or a hang of a process.
type fault struct {
	role  processes.Role
	after time.Duration // since the fault before it
	// hang is how long the process is suspended; 0 kills it.
	hang time.Duration
}

// A hang is from one second to twice the time after which most parts take a
// process for dead.
const (
	shortestHang = time.Second
	longestHang  = 20 * time.Second
	// killsPerHang is the number of kills for each hang.
	killsPerHang = 6
)

// faultPlan chooses faults, one after the other, from a seed alone. The moments of a run
// at which they happen still differ from one execution to the next.
type faultPlan struct {
	random *rand.Rand
	every  time.Duration
	roles  []processes.Role
	round  []processes.Role // roles that are still to be killed in this round, which kills each role once
	count  int
}

func newFaultPlan(seed uint64, every time.Duration, roles []processes.Role) *faultPlan {
	return &faultPlan{random: rand.New(rand.NewPCG(seed, 0x6368616f73)), every: every, roles: roles}
}

// next returns the next fault. Its time after the previous fault is between half and one
// and a half times the mean.
func (p *faultPlan) next() fault {
	p.count++
	b := fault{after: p.every/2 + time.Duration(p.random.Int64N(int64(p.every)))}
	if p.count%(killsPerHang+1) == 0 {
		b.role = p.roles[p.random.IntN(len(p.roles))]
		b.hang = shortestHang + time.Duration(p.random.Int64N(int64(longestHang-shortestHang)))
		return b
	}
	if len(p.round) == 0 {
		p.round = append(p.round, p.roles...)
		p.random.Shuffle(len(p.round), func(i, j int) { p.round[i], p.round[j] = p.round[j], p.round[i] })
	}
	b.role, p.round = p.round[0], p.round[1:]
	return b
}
