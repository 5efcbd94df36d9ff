package format_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/format"
)

func TestChancesHaveNoPowerOfTen(t *testing.T) {
	t.Parallel()
	for p, want := range map[float64]string{
		0: "below 0.1 %", 0.0009: "below 0.1 %", 0.001: "0.1 %", 0.0123: "1.2 %", 0.0994: "9.9 %", 0.0996: "10 %", 0.5: "50 %", 0.994: "99 %", 0.996: "100 %", 1: "100 %",
	} {
		require.Equal(t, want, format.Chance(p), p)
	}
	for i := range 1001 {
		require.Regexp(t, `^(below 0\.1|\d{1,3}(\.\d+)?) %$`, format.Chance(float64(i)/1000))
	}
}

func TestTimesNameTheirZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	require.Equal(t, at.Local().Format("2006-01-02 15:04:05 -07:00"), format.Moment(at))
}

func TestOneThingIsNotInThePlural(t *testing.T) {
	t.Parallel()
	require.Equal(t, "1 step", format.Counted(1, "step"))
	require.Equal(t, "0 steps", format.Counted(0, "step"))
	require.Equal(t, "12\u2009345 more tokens", format.Counted(12345, "more token"))
	require.Equal(t, "2 log-probabilities", format.Counted(2, "log-probability"))
}
