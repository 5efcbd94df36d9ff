package workers_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Agents of a cpu process on the same machine could read the environment of any other process
// of their user.
func TestEachProcessIsConcealedFromAgentsOfItsMachine(t *testing.T) {
	withoutKeys(t)
	database, flags := state(t)
	open(t, database)
	for name, args := range map[string][]string{
		"gateway": append([]string{"gateway"}, flags...),
		"sampler": append([]string{"sampler"}, flags...),
		"tools":   {"tools", "--corpus", corpus(t)},
	} {
		require.NoError(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0), name)
		r := begin(t, args...)
		r.log.await(t, `"msg":"started"`)
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		require.Zero(t, dumpable, name)
		r.stop()
		require.Zero(t, <-r.code)
	}
}
