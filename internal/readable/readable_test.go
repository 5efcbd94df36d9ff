package readable_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/readable"
)

func TestOneThingIsInTheSingular(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"1 step":                  readable.Count(1, "step"),
		"0 steps":                 readable.Count(0, "step"),
		"2 model calls":           readable.Count(2, "model call"),
		"3 entries":               readable.Count(3, "entry"),
		"2 days":                  readable.Count(2, "day"),
		"2 batches":               readable.Count(2, "batch"),
		"1 task is quarantined":   readable.Are(1, "task", "quarantined"),
		"4 tasks are quarantined": readable.Are(4, "task", "quarantined"),
	} {
		require.Equal(t, want, got)
	}
}

func TestATimeSaysItsZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 23, 30, 0, 0, time.UTC)
	require.Equal(t, "2026-03-01 23:30:00 +00:00", readable.In(at, time.UTC))
	require.Equal(t, "2026-03-02 05:15:00 +05:45", readable.In(at, time.FixedZone("", (5*60+45)*60)))
	require.Equal(t, readable.In(at, time.Local), readable.Time(at))
}

// full accepts some writes, and then none.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left == 0 {
		return 0, io.ErrShortWrite
	}
	f.left--
	return len(p), nil
}

func TestLinesEndWithoutSpacesAndKeepTheFirstError(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	l := readable.Lines{W: &text}
	l.Line("%-6s", "a")
	l.Line("")
	require.NoError(t, l.Err)
	require.Equal(t, "a\n\n", text.String())

	l = readable.Lines{W: &full{left: 1}}
	for range 3 {
		l.Line("a")
	}
	require.ErrorIs(t, l.Err, io.ErrShortWrite)
}
