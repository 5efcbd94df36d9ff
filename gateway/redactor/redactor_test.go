//go:build unix

package redactor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
