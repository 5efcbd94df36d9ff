package capacity_test

import (
	"os"
	"os/exec"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/capacity"
)

func TestTheControlGroupWithTheLeastRoomCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int
	}{
		{"no groups", nil, 0},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/pids.max": "max\n"}, 0},
		{"a group above", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/pids.max": "900\n", "sys/fs/cgroup/a/b/pids.current": "10\n",
			"sys/fs/cgroup/a/pids.max": "512\n", "sys/fs/cgroup/a/pids.current": "500\n",
		}, 12},
		{"a container that sees its group as the top", map[string]string{"proc/self/cgroup": "0::/docker/f00\n", "sys/fs/cgroup/pids.max": "100\n", "sys/fs/cgroup/pids.current": "3\n"}, 97},
		{"the first version", map[string]string{"proc/self/cgroup": "5:cpu:/x\n4:pids:/x\nnonsense\n", "sys/fs/cgroup/pids/x/pids.max": "64\n"}, 64},
		{"full", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/pids.max": "64\n", "sys/fs/cgroup/pids.current": "70\n"}, 1},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, capacity.OfGroups(root), c.name)
	}
}

// The limit on open files that a shell sets counts in the processes that it starts.
func TestTheLimitsOfTheShellCount(t *testing.T) {
	t.Parallel()
	if os.Getenv("FULGURITE_TEST_CAPACITY") != "" {
		agents, why := capacity.Agents()
		require.LessOrEqual(t, agents, 8)
		require.NotEmpty(t, why)
		return
	}
	c := exec.Command("sh", "-c", `ulimit -n 384 && exec "$0" -test.run 'TestTheLimitsOfTheShellCount$'`, os.Args[0])
	c.Env = append(os.Environ(), "FULGURITE_TEST_CAPACITY=1")
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
}
