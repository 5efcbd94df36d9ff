//go:build unix

package redactor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/fulgurite/fulgurite/gateway/redactor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

func shell(script string) []string { return []string{"sh", "-c", script} }

func newSet(t *testing.T) *redactor.Set {
	t.Helper()
	s := &redactor.Set{}
	t.Cleanup(s.Close)
	return s
}

func TestAProgramRewritesTextsInTheirOrder(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	starts := filepath.Join(t.TempDir(), "starts")
	command := shell(`echo >>` + starts + `; exec sed -u s/Ann/NAME/g`)
	var group sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		group.Go(func() {
			got, err := s.Redact(t.Context(), command, patience, fmt.Sprintf("Ann\n\"%d\"", i))
			if want := fmt.Sprintf("NAME\n\"%d\"", i); err == nil && got != want {
				err = fmt.Errorf("%q, not %q", got, want)
			}
			errs[i] = err
		})
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	long := strings.Repeat("Ann ", 1<<18)
	got, err := s.Redact(t.Context(), command, patience, long)
	require.NoError(t, err)
	require.Equal(t, strings.ReplaceAll(long, "Ann", "NAME"), got)
	written, err := os.ReadFile(starts)
	require.NoError(t, err)
	require.Len(t, written, 1, "it is started once")
}

func TestAProgramThatFailsIsStartedAgain(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{
		`read x; exit 3`: "ended without an answer", `echo hello`: "not {", `echo '{"text":7}'`: "not {", `echo '{}'`: "not {", `sleep 1000`: "no answer within",
		`sleep 1000 & wait`: "no answer within",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newSet(t)
			s.MaxStart = time.Nanosecond
			broken := filepath.Join(t.TempDir(), "broken")
			require.NoError(t, os.WriteFile(broken, nil, 0o600))
			command := shell(`if [ -e '` + broken + `' ]; then ` + what + `; exec cat >/dev/null; fi; exec cat`)
			timeout := patience
			if strings.HasPrefix(what, "sleep") {
				timeout = 200 * time.Millisecond
			}
			for range 2 {
				_, err := s.Redact(t.Context(), command, timeout, "a")
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, `redact by "sh"`)
			}
			require.NoError(t, os.Remove(broken))
			got, err := s.Redact(t.Context(), command, patience, "a")
			require.NoError(t, err)
			require.Equal(t, "a", got)
		})
	}
	s := newSet(t)
	_, err := s.Redact(t.Context(), []string{"/no/such/program"}, patience, "a")
	require.ErrorContains(t, err, "start")
	_, err = s.Redact(t.Context(), nil, patience, "a")
	require.ErrorContains(t, err, "the command is empty")
	s.Close()
	_, err = s.Redact(t.Context(), shell("cat"), patience, "a")
	require.ErrorContains(t, err, "ends")
}

// slow is a program that writes its name into a file whenever it is started, and answers once
// another file is there.
func slow(t *testing.T) (command []string, starts func() int, ready func()) {
	t.Helper()
	started, gate := filepath.Join(t.TempDir(), "starts"), filepath.Join(t.TempDir(), "gate")
	command = shell(`echo x >>` + started + `; while ! [ -e ` + gate + ` ]; do sleep 0.01; done; exec cat`)
	starts = func() int {
		all, err := os.ReadFile(started)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		return len(all) / 2
	}
	return command, starts, func() { require.NoError(t, os.WriteFile(gate, nil, 0o600)) }
}

func TestAProgramThatStartsSlowlyIsNotKilledForIt(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	command, starts, ready := slow(t)
	impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.Redact(impatient, command, time.Millisecond, "first")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	ready()
	got, err := s.Redact(t.Context(), command, patience, "second")
	require.NoError(t, err)
	require.Equal(t, "second", got, "the answer to the first text is not taken for it")
	require.Equal(t, 1, starts())
}

func TestTheFirstTextWaitsForTheStart(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	command, starts, ready := slow(t)
	answered := make(chan error)
	go func() {
		_, err := s.Redact(t.Context(), command, time.Millisecond, "first") // less than any start takes
		answered <- err
	}()
	require.Eventually(t, func() bool { return starts() > 0 }, patience, time.Millisecond)
	ready()
	require.NoError(t, <-answered)
}

func TestAProgramThatNeverStartsIsKilledAtTheBound(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	s.MaxStart = 100 * time.Millisecond
	command, starts, ready := slow(t)
	impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := s.Redact(impatient, command, time.Millisecond, "first")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for starts() < 2 { // nobody waits for the first start any more
		_, err = s.Redact(t.Context(), command, time.Millisecond, "again")
		require.ErrorContains(t, err, "no answer within 101ms")
	}
	s = newSet(t)
	ready()
	_, err = s.Redact(t.Context(), command, patience, "a")
	require.NoError(t, err)
}

func TestATextThatWaitedForOthersKillsNoProgram(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	starts := filepath.Join(t.TempDir(), "starts")
	command := shell(`echo x >>'` + starts + `'; while read x; do sleep 0.05; echo "$x"; done`)
	_, err := s.Redact(t.Context(), command, patience, "a")
	require.NoError(t, err)
	var group sync.WaitGroup
	var given atomic.Int64
	for range 20 { // the last ones would wait for a second
		group.Go(func() {
			if _, err := s.Redact(t.Context(), command, 220*time.Millisecond, "b"); err != nil {
				given.Add(1)
			}
		})
	}
	group.Wait()
	require.Positive(t, given.Load())
	_, err = s.Redact(t.Context(), command, patience, "c")
	require.NoError(t, err)
	written, err := os.ReadFile(starts)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(written), "it is started once")
}

func TestATextIsBoundedOnceTheProgramHasStarted(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	command := shell(`read x; echo "$x"; exec sleep 1000`)
	_, err := s.Redact(t.Context(), command, patience, "a")
	require.NoError(t, err)
	_, err = s.Redact(t.Context(), command, 50*time.Millisecond, "b")
	require.ErrorContains(t, err, "no answer within 50ms")
}

func TestCloseDoesNotWaitForAStart(t *testing.T) {
	t.Parallel()
	s := &redactor.Set{}
	command, starts, _ := slow(t)
	done := make(chan error)
	go func() {
		_, err := s.Redact(t.Context(), command, time.Hour, "a")
		done <- err
	}()
	require.Eventually(t, func() bool { return starts() > 0 }, patience, time.Millisecond)
	s.Close()
	require.ErrorContains(t, <-done, "ends")
}
