package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/doctor"
	"github.com/fulgurite/fulgurite/internal/capacity"
)

func TestASmallLimitOnOpenFilesIsSaidWithTheNumberThatIsEnough(t *testing.T) {
	t.Parallel()
	got := doctor.LimitFindings(capacity.Limits{Files: 384, Threads: 19000, Memory: 8 << 30}, 2)
	require.Equal(t, doctor.Limits{
		Agents: 8, Limit: "open files to 384 (ulimit -n), and 64 agents need 1280", Calls: 64, Files: 384, Threads: 19000, Memory: 8 << 30,
	}, got[0].Facts)
	require.Contains(t, got[0].Text, "8 agents at once, because the system limits open files to 384 (ulimit -n), and 64 agents need 1280")
	require.Contains(t, got[0].Text, "--agents, or --concurrency of a worker")
	require.Equal(t, doctor.Found, got[1].State, "fewer agents run")
	require.Equal(t, "open files of a process (ulimit -n): 384, enough for 8 agents, or for 64 calls in flight in a gateway", got[1].Text)
	require.Equal(t, "ulimit -n 1280", got[1].Fix[0])
	require.Contains(t, got[2].Text, "19000 more than now, enough for 1179 agents")
	require.Contains(t, got[3].Text, "8.59 GB, enough for 240 small agents")

	got = doctor.LimitFindings(capacity.Limits{Files: 200}, 2)
	require.Equal(t, doctor.Missing, got[1].State, "no agent runs")
	require.Equal(t, "open files of a process (ulimit -n): 200, and a process with one agent needs 272, with 64 agents 1280", got[1].Text)
	require.Equal(t, "ulimit -n 1280", got[1].Fix[0])
	require.Contains(t, got[2].Text, "no limit that is known")
	require.Equal(t, doctor.Unknown, got[3].State)

	got = doctor.LimitFindings(capacity.Limits{}, 4)
	require.Contains(t, got[0].Text, "128 agents at once, 32 for each of 4 cores")
	require.Equal(t, doctor.Limits{Agents: 128}, got[0].Facts)
	require.Empty(t, got[1].Fix)
}
