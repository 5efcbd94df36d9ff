//go:build unix

package reflector_test

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts/reflector"
)

// script returns a reflector that is a shell script, which runs in a directory of its own.
func script(t *testing.T, timeout time.Duration, text string) (r reflector.Reflector, dir string) {
	t.Helper()
	dir = t.TempDir()
	r = open(t, reflector.Options{Type: reflector.Command, Command: []string{"sh", "-c", text}, Dir: dir, Timeout: timeout})
	return reflector.WithPause(r, time.Millisecond), dir
}

func TestCommandsReply(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]reflector.Reply{
		`printf 'Do\n'`: {Text: "Do\n"},
		`true`:          {},
		`printf '{"text":"Do","cut_off":true,"usage":{"input":5,"output":3},"model":"m"}\n'`: {
			Text: "Do", CutOff: true, Usage: reflector.Usage{Input: 5, Output: 3}, Model: "m",
		},
		`printf '{"text":"","usage":{"input":-1}}'`: {},
		`printf '{{name}} is here'`:                 {Text: "{{name}} is here"},
		`printf '["a"]'`:                            {Text: `["a"]`},
		`printf 'a\000\377b'`:                       {Text: "a\uFFFD\uFFFDb"},
		`exec <&-; sleep 0; printf 'unread'`:        {Text: "unread"},
		`echo noise >&2; sleep 1000 & printf left`:  {Text: "left"},
	} {
		r, _ := script(t, 0, text)
		got, err := r.Reflect(t.Context(), question)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestACommandReadsTheQuestion(t *testing.T) {
	t.Parallel()
	r, dir := script(t, 0, `cat > question.json`)
	_, err := r.Reflect(t.Context(), reflector.Question{System: "S", User: strings.Repeat("ü", 1<<20), Try: 3})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "question.json"))
	require.NoError(t, err)
	var q reflector.Question
	require.NoError(t, json.Unmarshal(text, &q))
	require.Equal(t, reflector.Question{System: "S", User: strings.Repeat("ü", 1<<20), MaxTokens: reflector.DefaultMaxTokens, Try: 3}, q)
}

func TestACommandThatFailsIsRunAgain(t *testing.T) {
	t.Parallel()
	r, _ := script(t, 0, `echo try >> tries; test $(wc -l < tries) = 3 && printf Do`)
	got, err := r.Reflect(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, "Do", got.Text)
}

func TestACommandThatKeepsFailingIsGivenUp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`echo wrong >&2; exit 2`:    "run sh, 3 times: the reflector's command failed: exit status 2; it wrote: wrong",
		`printf '{"error":"busy"}'`: `it printed a JSON object without "text"`,
		`printf '{"text":7}'`:       "it printed a JSON object that is no reply",
		`yes`:                       "it printed more than 4194304 bytes",
		`yes e | head -c 100000 >&2; printf x; exit 1`: "exit status 1",
	} {
		r, dir := script(t, 0, "echo try >> tries; "+text)
		_, err := r.Reflect(t.Context(), question)
		require.ErrorIs(t, err, reflector.ErrFailed, text)
		require.True(t, reflector.Final(err))
		require.ErrorContains(t, err, want)
		require.Less(t, len(err.Error()), 5000)
		tries, err := os.ReadFile(filepath.Join(dir, "tries"))
		require.NoError(t, err)
		require.Equal(t, "try\ntry\ntry\n", string(tries))
	}
}

// hold is a script that never ends. Its child holds a named pipe open for as long as it
// lives.
const hold = `sh -c 'printf x; exec sleep 1000' > held & wait`

// heldBy makes the named pipe of hold and returns a function that waits until nobody holds
// it open any more, and returns what was written there.
func heldBy(t *testing.T, dir string) (pipe *os.File) {
	t.Helper()
	name := filepath.Join(dir, "held")
	require.NoError(t, syscall.Mkfifo(name, 0o600))
	pipe, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipe.Close() })
	return pipe
}

func TestACommandIsKilledWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	r, dir := script(t, time.Second, hold)
	pipe := heldBy(t, dir)
	_, err := r.Reflect(t.Context(), question)
	require.ErrorIs(t, err, reflector.ErrFailed)
	require.ErrorContains(t, err, "no reply within 1s")
	require.NoError(t, pipe.SetReadDeadline(time.Now().Add(20*time.Second)))
	text, err := io.ReadAll(pipe)
	require.NoError(t, err, "a child outlives the command")
	require.NotEmpty(t, text)
}

func TestAContextEndsACommand(t *testing.T) {
	t.Parallel()
	r, dir := script(t, time.Hour, hold)
	pipe := heldBy(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.Reflect(ctx, question)
		done <- err
	}()
	require.Eventually(t, func() bool {
		n, _ := pipe.Read(make([]byte, 1))
		return n == 1
	}, 20*time.Second, time.Millisecond)
	cancel()
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, reflector.Final(err))
	require.NoError(t, pipe.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = io.ReadAll(pipe)
	require.NoError(t, err, "a child outlives the command")
}

func TestACommandThatCantBeStartedIsNotFinal(t *testing.T) {
	t.Parallel()
	r := open(t, reflector.Options{Type: reflector.Command, Command: []string{filepath.Join(t.TempDir(), "none")}})
	_, err := r.Reflect(t.Context(), question)
	require.ErrorContains(t, err, "start the reflector's command")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.False(t, reflector.Final(err))
}
