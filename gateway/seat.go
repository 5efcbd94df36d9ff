package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/fulgurite/fulgurite/wire"
)

// seat is where one choice of a request waits for its call.
type seat struct {
	call    *call   // what it got
	flight  *flight // that it waits for; nil if the call was on record
	counted bool    // the flight answers this request
	begun   *trip   // the flight was begun by this request
	wait    func()  // returns when what this request began has ended
	// joined counts the calls that others began.
	joined *atomic.Int64
}

// host seats a request, which can be seated anew once the seats are vacated.
type host interface {
	// board gives one seat for each choice.
	board(ctx context.Context) ([]seat, error)
	// vacate gives seats back, whose calls were delivered or not, and waits for what
	// the request began.
	vacate(seats []seat, delivered bool)
}

// holds reports whether the call or the flight has one of the seats.
func holds(seats []seat, c *call, f *flight) bool {
	return slices.ContainsFunc(seats, func(s seat) bool { return c != nil && s.call == c || f != nil && s.flight == f })
}

// head is what is known of the reply before it is there.
func (s *seat) head(o *order) wire.Reply {
	if s.flight == nil {
		return o.head(s.call.stem, s.call.created, s.call.prompt)
	}
	return o.head(s.flight.stem, s.flight.created, s.flight.prompt)
}

func (s *seat) occurrence() int {
	if s.flight == nil {
		return s.call.occurrence
	}
	return s.flight.occurrence
}

// arrive waits for the call. An abandoned flight answers nobody: then the error is
// errAgain.
func (s *seat) arrive(ctx context.Context) (*call, error) {
	if s.call != nil {
		return s.call, nil
	}
	select {
	case <-s.flight.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for call: %w", ctx.Err())
	}
	switch {
	case !s.counted:
		return nil, errAgain
	case s.flight.err != nil:
		return nil, s.flight.err
	}
	s.call = s.flight.call
	if s.joined != nil {
		s.joined.Add(1)
	}
	return s.call, nil
}

// inside hosts a request of an attempt.
type inside struct {
	*Gateway
	attempt  *attempt
	question *question
}

func (h *inside) board(ctx context.Context) ([]seat, error) {
	for {
		seats, err := h.boardOnce(ctx)
		if !errors.Is(err, errAgain) {
			return seats, err
		}
	}
}

func (h *inside) boardOnce(ctx context.Context) ([]seat, error) {
	a, q := h.attempt, h.question
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.ready(ctx, h.Gateway); err != nil {
		return nil, err
	}
	if err := a.resume(q); err != nil {
		return nil, err
	}
	form := a.canonicalize(q)
	repeats := a.repeatsOf(form.key)
	seats := make([]seat, q.order.request.N)
	for i := range seats {
		c, f := repeats.standing(q.nth(i), q.again, h.config.NoReplay, seats[:i])
		if c == nil && f == nil && (q.again || q.reasked) && !q.looked && !h.config.NoReplay {
			// Another gateway may have answered it since this one read the journal.
			q.looked, a.loaded = true, false
			return nil, errAgain
		}
		seats[i].call, seats[i].flight = c, f
	}
	for i := range seats {
		if err := h.occupy(&seats[i], form, q.nth(i)); err != nil {
			h.rise(seats[:i], false)
			return nil, err
		}
	}
	// So that equal requests have their choices in one order, however they came by
	// them.
	slices.SortStableFunc(seats, func(s, t seat) int { return cmp.Compare(s.occurrence(), t.occurrence()) })
	for i := range seats {
		if s := &seats[i]; s.begun != nil {
			s.wait = h.launch(ctx, a, s.begun)
		}
	}
	return seats, nil
}

// occupy takes a seat, for which a call is begun if none stands. The caller holds
// mu.
func (h *inside) occupy(s *seat, form canonical, exchange string) error {
	switch {
	case s.call != nil:
		s.call.writers++
		if exchange != "" {
			s.call.exchange = exchange
		}
		h.count.rejoined.Add(1)
	case s.flight != nil:
		if s.counted = s.flight.waiters > 0; s.counted {
			s.flight.waiters++
		}
		s.joined = &h.count.rejoined
	default:
		t, err := h.attempt.takeOff(h.question, form, exchange)
		if err != nil {
			return err
		}
		s.flight, s.begun, s.counted = t.flight, t, true
	}
	return nil
}

func (h *inside) vacate(seats []seat, delivered bool) {
	h.attempt.mu.Lock()
	h.rise(seats, delivered)
	h.attempt.mu.Unlock()
	for _, s := range seats {
		if s.wait != nil {
			s.wait()
		}
	}
}

// rise leaves seats. A call that was not launched yet is not made. The caller holds
// mu.
func (h *inside) rise(seats []seat, delivered bool) {
	for _, s := range seats {
		if s.begun != nil && s.wait == nil {
			h.attempt.land(s.begun.form.key, s.flight, nil, errAgain)
			continue
		}
		c := s.call
		if c == nil && s.counted && !s.flight.leave() {
			c = s.flight.call
		}
		if c != nil {
			c.writers--
			c.delivered = c.delivered || delivered
		}
	}
}
