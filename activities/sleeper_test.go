package activities_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/activities"
	"github.com/fulgurite/fulgurite/record"
)

// sleeper notes when servers on the trainer's GPU sleep.
type sleeper struct {
	mu    sync.Mutex
	log   []string
	fails error
	check func()
}

func (s *sleeper) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, what)
}

func (s *sleeper) Sleep(_ context.Context, run string) (func(context.Context) error, error) {
	if s.fails != nil {
		return nil, s.fails
	}
	s.note("sleep " + run)
	return func(context.Context) error {
		s.check()
		s.note("wake")
		return errors.New("it does not wake") // the publication of the version wakes it
	}, nil
}

func TestServersOnTheGPUSleepWhileAVersionIsMade(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.start(w.spec())
	in := trainStep(1, w.batch(1, sampledAt))
	s := &sleeper{fails: errors.New("it does not sleep")}
	trainer := w.trainer()
	trainer.Sleeper = s
	_, err := do[activities.VersionResult](t, trainer.TrainStep, in)
	require.ErrorContains(t, err, "free the GPU: it does not sleep")
	w.requireNoVersion(1)

	s.fails = nil
	s.check = func() {
		_, err := w.version(1)
		require.NoError(t, err, "they sleep until it is on record")
	}
	_, err = do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.Equal(t, []string{"sleep demo", "wake"}, s.log)
	_, err = do[activities.VersionResult](t, trainer.TrainStep, in)
	require.NoError(t, err)
	require.Len(t, s.log, 2, "a version that is on record needs no GPU")

	_, err = w.version(2)
	require.ErrorIs(t, err, record.ErrNotFound)
}
