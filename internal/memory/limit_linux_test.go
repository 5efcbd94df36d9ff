package memory_test

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/memory"
)

func TestTheLeastLimitOfTheControlGroupsCounts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no groups", nil, 0},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		{"the group above", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "4096\n", "sys/fs/cgroup/a/memory.max": "1024\n",
		}, 1024},
		{"a container that sees its group as the top", map[string]string{"proc/self/cgroup": "0::/docker/f00\n", "sys/fs/cgroup/memory.max": "2048\n"}, 2048},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\nnonsense\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "512\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 512},
		{"nonsense", map[string]string{"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": "much"}, 0},
	} {
		root := fstest.MapFS{}
		for name, text := range c.files {
			root[name] = &fstest.MapFile{Data: []byte(text)}
		}
		require.Equal(t, c.want, memory.GroupLimit(root), c.name)
	}
}
