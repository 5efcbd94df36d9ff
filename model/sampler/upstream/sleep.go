package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
)

const (
	// longestSleep is how long a call waits for a server that sleeps. After that the call
	// is a fault and is made again.
	longestSleep = 30 * time.Minute
	// pollInterval is the interval at which such a call checks whether the server is awake.
	pollInterval = 250 * time.Millisecond
)

// SharesGPU reports whether the servers sleep while a trainer computes.
func (s *Sampler) SharesGPU() bool { return s.options.ShareGPU }

// Sleep makes every replica give up its GPU's memory once the current calls have ended.
// vLLM keeps the weights and the adapters in the machine's memory, and drops its cache. A
// replica that sleeps already stays as it is. If one can't sleep, Sleep wakes the others.
// Without Options.ShareGPU it does nothing.
func (s *Sampler) Sleep(ctx context.Context) error {
	if !s.options.ShareGPU {
		return nil
	}
	err := s.atEach(func(at *replica) error {
		at.forgetVersions()
		return s.switchSleep(ctx, at, "/sleep?level=1&mode=wait", true)
	})
	if err != nil {
		err = errors.Join(err, s.Wake(context.WithoutCancel(ctx)))
	}
	return err
}

// Wake makes every replica that sleeps take its memory again. At each replica, the next
// call checks its adapter by the canary again. Waking a replica that is awake does
// nothing.
func (s *Sampler) Wake(ctx context.Context) error {
	if !s.options.ShareGPU {
		return nil
	}
	return s.atEach(func(at *replica) error { return s.wake(ctx, at) })
}

func (s *Sampler) wake(ctx context.Context, at *replica) error {
	at.forgetVersions()
	asleep, err := s.isAsleep(ctx, at)
	if err != nil || !asleep {
		return err
	}
	return s.switchSleep(ctx, at, "/wake_up", false)
}

// switchSleep posts to a route that puts a replica to sleep or wakes it, and checks
// whether it worked.
func (s *Sampler) switchSleep(ctx context.Context, at *replica, route string, want bool) error {
	response, err := s.ask(ctx, http.MethodPost, at.url+route, nil)
	if err != nil {
		return explainSleep(at, err)
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	asleep, err := s.isAsleep(ctx, at)
	if err == nil && asleep != want {
		err = fmt.Errorf("%w: %s answered 200 to %s, and says is_sleeping %t", ErrReply, at.url, route, asleep)
	}
	return err
}

func (s *Sampler) isAsleep(ctx context.Context, at *replica) (bool, error) {
	response, err := s.ask(ctx, http.MethodGet, at.url+"/is_sleeping", nil) //nolint:bodyclose // readJSON closes it
	if err != nil {
		return false, explainSleep(at, err)
	}
	var reply struct {
		Asleep *bool `json:"is_sleeping"`
	}
	if err := readJSON(response, &reply); err != nil {
		return false, err
	}
	if reply.Asleep == nil {
		return false, fmt.Errorf("%w: /is_sleeping has no is_sleeping", ErrReply)
	}
	return *reply.Asleep, nil
}

// explainSleep adds to err what to do if a server has no such routes, or can't sleep.
func explainSleep(at *replica, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return fmt.Errorf("sampling.server.share_gpu: %s: %w", at.url, err)
	}
	if r.status == http.StatusNotFound {
		return fmt.Errorf("%w: sampling.server.share_gpu: %s has no /sleep: start vLLM with --enable-sleep-mode and VLLM_SERVER_DEV_MODE=1 in its environment, or leave share_gpu out (%w)", ErrVersion, at.url, err)
	}
	return fmt.Errorf("sampling.server.share_gpu: %s: %w: was vLLM started with --enable-sleep-mode, on a GPU?", at.url, err)
}

// awake waits until a replica that shares its GPU is awake. While it sleeps, a trainer
// computes there.
func (s *Sampler) awake(ctx context.Context, at *replica) error {
	if !s.options.ShareGPU {
		return nil
	}
	for until := time.Now().Add(longestSleep); ; {
		asleep, err := s.isAsleep(ctx, at)
		if err != nil || !asleep {
			return err
		}
		at.forgetVersions() // versions are checked once it is awake
		if time.Now().After(until) {
			return fmt.Errorf("%w: %s has slept for %v; POST /wake_up wakes it", ErrAway, at.url, longestSleep)
		}
		if !wait.For(ctx, pollInterval) {
			return ctx.Err()
		}
	}
}
