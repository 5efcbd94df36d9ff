package traffic

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/run/experiment"
)

func TestExperimentsAreListedWithTheirIntervals(t *testing.T) {
	t.Parallel()
	begun := time.Date(2026, 5, 12, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	require.NoError(t, listExperiments(&terminal.Terminal{Out: &out}, "demo", []experimentRow{
		{Candidate: 3, Control: 1, Share: 0.1, Status: record.ExperimentWithdrawn, Reason: "worse\x1b[31m", Begun: begun, Ended: begun.Add(time.Hour), Result: &experiment.Result{
			Difference: -0.2, Low: -0.3, High: -0.1, Candidate: experiment.Arm{Conversations: 20, Units: 19}, Control: experiment.Arm{Conversations: 180, Units: 150},
		}},
		{Candidate: 4, Control: 1, Share: 0.1, Status: record.ExperimentRunning, Begun: begun, Result: &experiment.Result{Difference: 0.5, Low: -1, High: 1}},
		{Candidate: 5, Control: 4, Share: 0.1, Status: record.ExperimentRunning, Begun: begun},
	}))
	require.Regexp(t, `(?m)^3 +1 +0\.1 +withdrawn +-0\.200 +-0\.300 to -0\.100 +20 and 180 +19 and 150 +2026\S+ \S+ \S+ +2026\S+ \S+ \S+$`, out.String())
	require.Regexp(t, `(?m)^4 +1 +0\.1 +running +\+0\.500 +not yet +0 and 0 `, out.String())
	require.Regexp(t, `(?m)^5 +4 +0\.1 +running +2026`, out.String())
	require.Contains(t, out.String(), "version 3: worse\\x1b[31m\n")
	require.NotContains(t, out.String(), "\x1b")
}
