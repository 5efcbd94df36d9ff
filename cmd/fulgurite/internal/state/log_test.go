package state_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
)

func TestTheLogIsShortWithoutVerbose(t *testing.T) {
	t.Parallel()
	write := func(s state.Flags) string {
		var out bytes.Buffer
		log := s.Logger(context.Background(), &out).Named("worker").With(zap.String("Namespace", "default"), zap.String("WorkerID", strings.Repeat("w", 200)))
		log.Error("Activity error.", zap.String("WorkflowID", "demo/train-1/0"), zap.String("ActivityType", "RunAgent"), zap.Error(errors.New("port 4\nis "+strings.Repeat("closed ", 60))))
		log.Warn("never mind")
		log.Error("Activity error.", zap.String("WorkflowID", "demo/train-2/7"), zap.String("ActivityType", "RunAgent"), zap.Error(errors.New("port 5\nis "+strings.Repeat("closed ", 60))))
		_ = log.Sync() // tells what repeated at once
		return out.String()
	}
	short := write(state.Flags{})
	require.Regexp(t, `^\d\d:\d\d:\d\d worker: Activity error \(RunAgent of demo/train-1/0\): port 4 is closed closed .*…\n\d\d:\d\d:\d\d worker: Activity error \(RunAgent of demo/train-2/7\): port 5 is closed .*… \(1 more like it\)\n$`, short)
	for line := range strings.Lines(short) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 241)
	}
	long := write(state.Flags{Verbose: true})
	require.Contains(t, long, `"Namespace": "default"`)
	require.Contains(t, long, "never mind")
}
