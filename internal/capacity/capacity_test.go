package capacity_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/capacity"
)

func TestTheSmallestLimitDecidesHowManyAgentsRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limits capacity.Limits
		want   int
		why    string
	}{
		"no limits":       {capacity.Limits{}, 64, ""},
		"wide limits":     {capacity.Limits{Files: 524288, Threads: 19000}, 64, ""},
		"files":           {capacity.Limits{Files: 1024, Threads: 19000}, 48, "open files to 1024 (ulimit -n), and 64 agents need 1280"},
		"threads":         {capacity.Limits{Files: 1024, Threads: 512}, 24, "threads"},
		"nearly none":     {capacity.Limits{Files: 64}, 1, "open files"},
		"no thread left":  {capacity.Limits{Threads: 1}, 1, "threads"},
		"memory":          {capacity.Limits{Memory: 1 << 30}, 16, "memory to 1024 MiB"},
		"no memory left":  {capacity.Limits{Memory: 64 << 20}, 1, "64 agents need about 2560"},
		"both are narrow": {capacity.Limits{Files: 512, Threads: 512}, 16, "open files"},
	} {
		got, why := c.limits.Agents(2)
		require.Equal(t, c.want, got, name)
		require.Contains(t, why, c.why, name)
		require.Equal(t, c.why == "", why == "", name)
	}
}
