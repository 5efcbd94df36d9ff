package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// monitor polls the store for progress, and measures the time from a kill to the next
// recorded work.
type monitor struct {
	db *checker.Database

	mu      sync.Mutex
	count   int64
	moved   time.Time // when count last grew
	waiting []*openRecovery
	over    map[processes.Role][]time.Duration
}

// openRecovery is a kill after which no progress was seen yet. The count before it is
// known only once the store has answered again.
type openRecovery struct {
	role     processes.Role
	at       time.Time
	baseline int64
	based    bool
}

func newMonitor(db *checker.Database) *monitor {
	return &monitor{db: db, moved: time.Now(), over: map[processes.Role][]time.Duration{}}
}

// Run polls ten times a second until ctx ends.
func (m *monitor) Run(ctx context.Context) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m.step(ctx)
	}
}

func (m *monitor) step(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	asked := time.Now()
	count, err := m.db.Progress(ctx)
	if err != nil {
		return // the store can't be reached, which faults cause on purpose
	}
	m.observe(asked, time.Now(), count)
}

// observe takes a count, and the times when it was requested and when it arrived.
func (m *monitor) observe(asked, came time.Time, count int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if count > m.count {
		m.count, m.moved = count, came
	}
	m.waiting = slices.DeleteFunc(m.waiting, func(p *openRecovery) bool {
		switch {
		case !p.based:
			if asked.After(p.at) {
				p.based, p.baseline = true, count
			}
		case count > p.baseline:
			m.over[p.role] = append(m.over[p.role], came.Sub(p.at))
			return true
		}
		return false
	})
}

// killed starts to measure.
func (m *monitor) killed(role processes.Role, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting = append(m.waiting, &openRecovery{role: role, at: at})
}

// idle returns for how long there has been no progress.
func (m *monitor) idle() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.moved)
}

// recoveries returns all times measured so far.
func (m *monitor) recoveries() map[processes.Role][]time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[processes.Role][]time.Duration{}
	for role, times := range m.over {
		out[role] = slices.Sorted(slices.Values(times))
	}
	return out
}

// children returns the child processes of a process, read from /proc.
func children(pid int) []int {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || pid == 0 {
		return nil
	}
	var out []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent …, where the name may hold anything.
		_, rest, _ := strings.Cut(string(text)[strings.LastIndexByte(string(text), ')')+1:], " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			out = append(out, child)
		}
	}
	return out
}

// noticeLimit is the time after which a hang counts as not noticed.
const noticeLimit = time.Minute

// detectHangs measures, in a separate run for each role, the time from SIGSTOP until the
// hang is detected: until a rollout of a CPU worker is retried, until the lease of the
// gateway or the sampler expires, or until the GPU worker's update times out in Temporal.
// PostgreSQL and Temporal are left out, because they are single processes that no other
// process can replace.
func (s *suite) detectHangs(ctx context.Context) error {
	baseline, err := s.baseline(ctx, plain)
	if err != nil {
		return err
	}
	s.report.HangDetection = map[processes.Role]*float64{processes.Postgres: nil, processes.Temporal: nil}
	for _, role := range []processes.Role{processes.CPU1, processes.Gateway, processes.Sampler, processes.GPU} {
		name, began := "hang-"+string(role), time.Now()
		if err := s.startRun(ctx, name, plain, ""); err != nil {
			return err
		}
		took, err := s.detectHang(ctx, name, role)
		if err != nil {
			return fmt.Errorf("hang of %s: %w", role, err)
		}
		if took > 0 {
			seconds := took.Seconds()
			s.report.HangDetection[role] = &seconds
			s.logf("hang of %s noticed after %.1f s", role, seconds)
		}
		if err := s.awaitRun(ctx, name); err != nil {
			return err
		}
		s.recordDuration(name, began)
		if _, err := s.check(ctx, name, baseline); err != nil {
			return err
		}
	}
	return nil
}

// detectHang returns the time until the hang was detected, or 0 if it was not.
func (s *suite) detectHang(ctx context.Context, name string, role processes.Role) (time.Duration, error) {
	over, err := s.waitFor(ctx, name, func(time.Duration) bool { return s.agentMidway(ctx, name) })
	if over || err != nil {
		return 0, err
	}
	resume, err := s.faultInjector.hang(role)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	since := began
	over, err = s.waitFor(ctx, name, func(waited time.Duration) bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if waited > noticeLimit {
			return true
		}
		switch role {
		case processes.GPU:
			var noticed bool
			since, noticed = s.updateTimedOut(ctx, name, since)
			return noticed
		case processes.CPU1:
			n, err := s.db.TriedAgain(ctx, name, began)
			return err == nil && n > 0
		default:
			n, err := s.db.Leases(ctx, string(role))
			return err == nil && n == 0
		}
	})
	took := time.Since(since)
	if e := resume(); err == nil {
		err = e
	}
	if over || err != nil || time.Since(began) > noticeLimit {
		return 0, err
	}
	return took, nil
}

// updateTimedOut reports whether the update of a worker has timed out, and when it
// started: a hang can't be noticed before there is work.
func (s *suite) updateTimedOut(ctx context.Context, name string, since time.Time) (time.Time, bool) {
	d, err := s.temporal.DescribeWorkflowExecution(ctx, name, "")
	if err != nil {
		return since, false
	}
	for _, a := range d.PendingActivities {
		if kind := a.ActivityType.GetName(); kind != "TrainStep" && kind != "InitPolicy" {
			continue
		}
		if a.LastFailure != nil {
			return since, true
		}
		if at := a.LastStartedTime; at != nil && at.AsTime().After(since) {
			since = at.AsTime()
		}
	}
	return since, false
}
