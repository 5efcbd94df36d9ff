package logging_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/internal/logging"
)

// logged returns a logger and what it has passed on: messages with their errors and counts.
func logged() (*zap.Logger, func() []string) {
	core, all := observer.New(zapcore.InfoLevel)
	return zap.New(logging.WithoutRepeats(core, logging.Every)), func() (lines []string) {
		for _, e := range all.TakeAll() {
			fields := e.ContextMap()
			lines = append(lines, fmt.Sprintf("%s %s: %v %v", e.Level, e.Message, fields["error"], fields[logging.Repeated]))
		}
		return lines
	}
}

func TestARepeatedFailureIsOneLineWithACount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := logged()
		for i := range 30 {
			log.With(zap.String("WorkflowID", fmt.Sprint("run/train-", i)), zap.String("RunID", rand.Text())).Error("Activity error.", zap.Error(fmt.Errorf("attempt run/train-1/%d/0/1: it timed out", i)))
		}
		log.Error("Activity error.", zap.Error(errors.New("no such file")))
		require.Equal(t, []string{"error Activity error.: attempt run/train-1/0/0/1: it timed out <nil>", "error Activity error.: no such file <nil>"}, lines(), "the first at once")
		time.Sleep(logging.Every + time.Second)
		synctest.Wait()
		require.Equal(t, []string{"error Activity error.: attempt run/train-1/29/0/1: it timed out 29"}, lines())
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, lines())
		log.Error("Activity error.", zap.Error(errors.New("no such file")))
		require.Len(t, lines(), 1, "it had ended, so this is a new one")
		time.Sleep(time.Hour)
	})
}

func TestLinesAboutAFailureThatGoesOnGrowRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, lines := logged()
		total := 0
		for range 3600 {
			log.Warn("waiting", zap.Error(errors.New("connection refused")))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		require.NoError(t, log.Sync())
		told := lines()
		require.Less(t, len(told), 20)
		for _, line := range told[1:] {
			var n int
			_, err := fmt.Sscanf(line, "warn waiting: connection refused %d", &n)
			require.NoError(t, err, line)
			total += n
		}
		require.Equal(t, 3599, total, "each is counted")
		time.Sleep(time.Hour)
	})
}

func TestOtherEntriesPassAsTheyAre(t *testing.T) {
	t.Parallel()
	log, lines := logged()
	for range 3 {
		log.Info("started")
		log.Debug("never mind")
	}
	log.Named("gateway").Warn("slow")
	log.Named("samplers").Warn("slow")
	log.Error("slow")
	log.Error("handler panicked", zap.Any("panic", "index out of range [5]"))
	log.Error("handler panicked", zap.Any("panic", "nil map"))
	log.With(zap.String("role", "gateway")).Warn("lease lost")
	log.With(zap.String("role", "sampler")).Warn("lease lost")
	require.Len(t, lines(), 10)
}

func TestMoreFailuresThanAreCountedAreLoggedOneByOne(t *testing.T) {
	t.Parallel()
	log, lines := logged()
	word := func(i int) string {
		return string(rune('a'+i/26/26%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i%26))
	}
	for i := range 1200 {
		log.Error(word(i))
	}
	log.Error(word(1199))
	require.Len(t, lines(), 1201)
}
