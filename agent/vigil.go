package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// errSilent is for a gateway that takes requests and answers none, not even whether
// it lives: a process that is stopped, a machine that is cut off.
var errSilent = errors.New("the gateway does not answer")

// vigilance says when a gateway that keeps an agent waiting is looked at.
type vigilance struct {
	after time.Duration // how long a request may take before that
	every time.Duration // between two looks
	limit time.Duration // without an answer to a look: then the gateway is given up
}

// vigil looks at one gateway for all requests that have waited for long.
type vigil struct {
	users  int // guarded by the forwarder's mu
	cancel context.CancelFunc
	silent chan struct{} // closed when the gateway is given up
}

// watch has the gateway at target looked at while a request to it takes long, and
// calls abandon when it is gone. The returned function ends that, and must be
// called.
func (f *Forwarder) watch(ctx context.Context, target string, abandon context.CancelCauseFunc) func() {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if !pause(ctx, f.vigilance.after) {
			return
		}
		v := f.join(target)
		defer f.part(target, v)
		select {
		case <-v.silent:
			abandon(errSilent)
		case <-ctx.Done():
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// join takes part in the vigil at target, the first one begins it.
func (f *Forwarder) join(target string) *vigil {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.vigil[target]
	if v == nil {
		ctx, cancel := context.WithCancel(context.Background())
		v = &vigil{cancel: cancel, silent: make(chan struct{})}
		f.vigil[target] = v
		f.vigils.Go(func() { f.look(ctx, target, v) })
	}
	v.users++
	return v
}

// part is for those who joined; the last one ends the vigil.
func (f *Forwarder) part(target string, v *vigil) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v.users--; v.users > 0 {
		return
	}
	v.cancel()
	f.disband(target, v)
}

// disband lets the next one who joins begin anew. The caller holds mu.
func (f *Forwarder) disband(target string, v *vigil) {
	if f.vigil[target] == v {
		delete(f.vigil, target)
	}
}

// look asks the gateway every so often whether it lives, until it hasn't answered
// for the limit.
func (f *Forwarder) look(ctx context.Context, target string, v *vigil) {
	answered := time.Now()
	for {
		left := f.vigilance.limit - time.Since(answered)
		if left <= 0 {
			break
		}
		probe, cancel := context.WithTimeout(ctx, left)
		if f.alive(probe, target) {
			answered = time.Now()
		}
		cancel()
		if !pause(ctx, min(f.vigilance.every, max(recheck, f.vigilance.limit-time.Since(answered)))) {
			return
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.disband(target, v)
	close(v.silent)
}

// answers reports whether the gateway at target is there at this moment.
func (f *Forwarder) answers(target string) bool {
	probe, cancel := context.WithTimeout(context.Background(), f.vigilance.limit)
	defer cancel()
	return target != "" && f.alive(probe, target)
}

// alive asks for the gateway's health, on a connection of its own: those that are
// kept may lead to where it was before. Any answer will do but that of a proxy
// which has lost it, or its own that it is at fault.
func (f *Forwarder) alive(ctx context.Context, target string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(target, "/")+"/healthz", http.NoBody)
	if err != nil {
		return false
	}
	response, err := f.probes.RoundTrip(request)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	return errors.Join(err, response.Body.Close()) == nil && response.StatusCode < http.StatusInternalServerError
}

// pause is false if ctx ended meanwhile.
func pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
