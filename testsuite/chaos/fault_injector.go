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

// keeper does to processes what the world does, and starts again at once what has
// ended, as an engine for containers would.
type keeper struct {
	fleet *processes.Fleet

	mu    sync.Mutex             // held while a process is killed or started
	ended map[processes.Role]int // by themselves, without being killed
	hangs map[processes.Role][]checker.Hang
}

// lookEvery is how soon the end of a process is noticed.
const lookEvery = 100 * time.Millisecond

// Run starts again what ends by itself, until ctx does.
func (k *keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
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

func (k *keeper) step(ctx context.Context) error {
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

// kill kills a process and starts it again. With PostgreSQL go all its children.
// The times are those of the kill.
func (k *keeper) kill(ctx context.Context, role processes.Role, killed func()) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	below := k.below(role)
	err := k.fleet.Kill(role)
	for _, pid := range below {
		err = errors.Join(err, ignoreGone(syscall.Kill(pid, syscall.SIGKILL)))
	}
	if err != nil {
		return fmt.Errorf("kill %s: %w", role, err)
	}
	killed()
	return k.fleet.Restart(ctx, role)
}

// hang lets a process stand still, all of PostgreSQL's too, until resume is
// called.
func (k *keeper) hang(role processes.Role) (resume func() error, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fleet.Hang(role); err != nil {
		return nil, err
	}
	from := time.Now()
	below := k.below(role)
	for _, pid := range below {
		err = errors.Join(err, ignoreGone(syscall.Kill(pid, syscall.SIGSTOP)))
	}
	return func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		var all error
		for _, pid := range below {
			all = errors.Join(all, ignoreGone(syscall.Kill(pid, syscall.SIGCONT)))
		}
		all = errors.Join(all, k.fleet.Resume(role))
		k.hangs[role] = append(k.hangs[role], checker.Hang{From: from, Until: time.Now()})
		return all
	}, err
}

// frozen are the hangs of some roles.
func (k *keeper) frozen(roles ...processes.Role) []checker.Hang {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []checker.Hang
	for _, role := range roles {
		all = append(all, k.hangs[role]...)
	}
	return all
}

// below are the children that belong to a role. Agents, the children of workers,
// don't: what becomes of them is the product's business.
func (k *keeper) below(role processes.Role) []int {
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
