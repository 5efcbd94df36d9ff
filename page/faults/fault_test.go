package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/faults"
	"github.com/fulgurite/fulgurite/record"
)

func cut(sample int, last, again float64, why string) record.Interruption {
	at := func(s float64) time.Time { return time.Unix(0, int64(s*1e9)) }
	return record.Interruption{Address: record.Address{RolloutID: record.RolloutID{Run: "r", Sample: sample}, Attempt: 1}, Last: at(last), Again: at(again), Error: why}
}

func TestOneKillIsOneFault(t *testing.T) {
	t.Parallel()
	got := faults.Group([]record.Interruption{
		cut(3, 100, 103, ""), cut(0, 10, 16, ""), cut(1, 11, 17.5, ""), cut(2, 10.5, 16.2, ""), cut(4, 11, 12, "no sandbox"),
	})
	require.Len(t, got, 3)
	require.Equal(t, 3, got[0].Attempts[0].Sample, "the newest comes first")
	require.Equal(t, "no sandbox", got[1].Text)
	require.Len(t, got[2].Attempts, 3)
	require.Equal(t, 0, got[2].Attempts[0].Sample)
	require.Equal(t, 7500*time.Millisecond, got[2].Took(), "until the last one had begun again")
	require.Empty(t, faults.Group(nil))
}
