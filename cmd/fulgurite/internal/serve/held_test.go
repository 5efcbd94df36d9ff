package serve_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/serve"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
	"github.com/fulgurite/fulgurite/internal/devserver"
)

// The successor has the same process id here, as it may have in a container.
func TestAStackWhoseDirectoryIsReplacedEndsAndLeavesItsSuccessorsAddresses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := &state.Flags{Dir: filepath.Join(t.TempDir(), "state")}
	zero := 0
	ports := serve.Ports{Port: &zero, UIPort: &zero, GatewayPort: &zero, MetricsPort: &zero}
	out := &terminal.Terminal{Out: t.Output(), Err: t.Output()}

	first, err := serve.Start(ctx, s, out, ports, nil, 1)
	require.NoError(t, err)
	held, release := serve.WhileHeld(ctx, first)
	defer release()
	require.NoError(t, first.CheckDirectory())
	require.NoError(t, os.Rename(s.Dir, s.Dir+".old"))
	next, err := serve.Start(ctx, s, out, ports, nil, 1)
	require.NoError(t, err)
	<-held.Done()
	require.ErrorIs(t, serve.Lost(held), devserver.ErrLost)
	require.NoError(t, serve.Close(s, first))

	at, err := s.Addresses()
	require.NoError(t, err)
	require.Equal(t, next.TemporalAddress(), at.Temporal)
	require.NoError(t, next.CheckDirectory())
	require.NoError(t, serve.Close(s, next))
	require.NoFileExists(t, s.AddressFile())
}
