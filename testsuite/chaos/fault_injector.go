package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
)

// faultInjector kills and suspends processes. It restarts a process that has ended at
// once, as a container engine does.
type faultInjector struct {
	fleet *processes.Fleet

	mu    sync.Mutex             // held while a process is killed or started
	ended map[processes.Role]int // by themselves, without being killed
	hangs map[processes.Role][]checker.Hang
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
		if k.fleet.PID(role) != 0 || ctx.Err() != nil {
			continue
		}
		k.ended[role]++
		if err := k.fleet.Restart(ctx, role); err != nil {
			return err
		}
	}
	return nil
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
