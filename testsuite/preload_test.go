package testsuite_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/spec"
)

// Agents may take a while until they call the model for the first time, and a large base
// takes a while to read: after a start both happen at once.
func TestAStackThatStartsAgainReadsTheWeightsBeforeTheFirstCall(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	begun := make(chan struct{}, 100)
	silent := agent.Registry{"silent": func(ctx context.Context, _ agent.Task, _ agent.Env) (string, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	}}
	st := startWith(ctx, t, dir, silent)
	s := tiny(spec.Agent{Func: "silent"})
	s.Model.WarmStart = nil
	ended := inBackground(ctx, st, "quiet", s)
	<-begun
	require.NoError(t, st.Close())
	require.Error(t, <-ended, "its client is closed")
	st = startWith(ctx, t, dir, silent)
	defer func() { require.NoError(t, st.Close()) }()
	first := model.VersionID{Run: "quiet", Policy: model.DefaultPolicy}
	require.Eventually(t, func() bool {
		loaded := st.Loaded()
		return len(loaded) == 1 && loaded[0] == first
	}, time.Minute, 10*time.Millisecond)
}
