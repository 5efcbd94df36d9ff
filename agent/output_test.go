package agent_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
	"github.com/fulgurite/fulgurite/record"
)

// shell runs a script as an agent.
func shell(t *testing.T, j agent.Job, script string) agent.Result {
	t.Helper()
	l := <-start(t.Context(), agent.Command{Args: sh(script), Scratch: t.TempDir()}, j)
	require.NoError(t, l.err)
	return l.result
}

func TestWhatAnAgentPrintsIsKeptHoweverItEnds(t *testing.T) {
	t.Parallel()
	limited := job("demo")
	limited.Limits.Time = 500 * time.Millisecond
	for name, c := range map[string]struct {
		job    agent.Job
		script string
		want   record.Output
	}{
		"well":             {job("a"), `echo one; echo; echo two; echo a remark >&2; printf three`, record.Output{Stdout: "one\n\ntwo\nthree", Stderr: "a remark\n", LinesBefore: 2}},
		"with one line":    {job("b"), `echo one; echo`, record.Output{Stdout: "one\n\n"}},
		"without a word":   {job("c"), `true`, record.Output{}},
		"with a failure":   {job("d"), `echo one; echo two; echo why >&2; exit 3`, record.Output{Stdout: "one\ntwo\n", Stderr: "why\n"}},
		"out of its time":  {limited, `echo one; exec sleep 60`, record.Output{Stdout: "one\n"}},
		"with odd letters": {job("e"), `printf 'a\377b'`, record.Output{Stdout: "a\uFFFDb"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, shell(t, c.job, c.script).Output)
		})
	}
}

func TestOutputIsKeptOfAnAttemptThatEndsByAFault(t *testing.T) {
	t.Parallel()
	r := <-start(t.Context(), agent.Command{Args: sh(`echo so far; kill -9 $PPID; sleep 60`), Scratch: t.TempDir()}, job("demo"))
	require.Error(t, r.err, "the shim was killed")
	require.Equal(t, record.Output{Stdout: "so far\n"}, r.result.Output)
}

func TestLongOutputKeepsItsBeginningAndItsEnd(t *testing.T) {
	t.Parallel()
	got := shell(t, job("demo"), `printf 'begin\n'; yes 'ééééééééé' | head -c 1000000; printf '\nend\n'`)
	require.Equal(t, "end", got.Text)
	out := got.Output.Stdout
	require.True(t, strings.HasPrefix(out, "begin\n"))
	require.True(t, strings.HasSuffix(out, "\nend\n"))
	require.Contains(t, out, "\n[995915 bytes left out]\n", "1,000,011 less 4 KiB")
	require.Less(t, len(out), 4<<10+100)
	require.True(t, utf8.ValidString(out))
	require.NotContains(t, out, "\uFFFD", "no half characters")
	require.Greater(t, got.Output.LinesBefore, 50000)
}
