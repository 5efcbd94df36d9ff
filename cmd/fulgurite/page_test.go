package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/terminal"
)

func TestThePageOfADirectoryNeedsNoTemporal(t *testing.T) {
	t.Setenv("TEMPORAL_ADDRESS", "")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	dir := newUnaccountedRun(t)
	out, in := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"page", "--dir", dir, "--port", "0"}, &terminal.Terminal{Out: in, Err: &errs})
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(lines.Text())
	require.NotEmpty(t, address, lines.Text())
	go func() { _, _ = io.Copy(io.Discard, out) }()

	for path, want := range map[string]string{"/": "Temporal does not say what it does: no stack runs", "/runs/demo": "Show the spec with all defaults"} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
		require.NoError(t, err)
		reply, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, http.StatusOK, reply.StatusCode)
		require.Contains(t, string(body), want)
	}
	end()
	require.Zero(t, <-code)
	require.Empty(t, errs.String())
}

func TestAPortOfThePageThatIsTakenIsRefused(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	taken, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, taken.Close()) }()
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"page", "--dir", newUnaccountedRun(t), "--port", port}, &terminal.Terminal{Out: &out, Err: &errs})
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs.String(), "the page's port "+port+" is in use; give another one, or 0 for any")
}
