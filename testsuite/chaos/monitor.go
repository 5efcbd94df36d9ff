package main

import (
	"context"
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
