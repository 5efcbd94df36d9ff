package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// walkOf returns a walk that runs the test binary and succeeds.
func walkOf(t *testing.T, play string) walk {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return walk{
		Command: []string{self}, Environment: map[string]string{"PLAY": play}, Input: "rivers", API: "chat", Calls: 1, Result: "true",
		Replies: []reply{{To: []string{"<user>rivers"}, Say: "Rivers run."}},
	}
}

func walked(t *testing.T, w walk) result {
	t.Helper()
	return walkTwice(t.Context(), example{Name: "test", Folder: t.TempDir()}, 0, w, false)
}

func TestAWalkCountsCallsAndTokens(t *testing.T) {
	t.Parallel()
	r := walked(t, walkOf(t, "whole"))
	require.NoError(t, r.err)
	require.Equal(t, 1, r.calls)
	require.Equal(t, len("Rivers run.")+1, r.trained, "and the end of the turn")
}

func TestAWalkNoticesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		play   string
		change func(*walk)
		want   string
	}{
		"a request is refused":            {"wrong", nil, "status 400"},
		"a refused request is forgiven":   {"careless", nil, "refused: POST"},
		"another result":                  {"whole", func(w *walk) { w.Result = "false" }, `the result is "true", want "false"`},
		"a call too few":                  {"whole", func(w *walk) { w.Calls = 2 }, "1 calls are on record, want 2"},
		"another API":                     {"whole", func(w *walk) { w.API = "responses" }, "call 0 came by chat, want responses"},
		"no stream":                       {"whole", func(w *walk) { w.Stream = true }, "0 of 1 replies were event streams, want 1"},
		"a stream":                        {"streamed", nil, "1 of 1 replies were event streams, want 0"},
		"nothing to say":                  {"whole", func(w *walk) { w.Input = "bread" }, "no reply is written down for the prompt <user>bread"},
		"a tool call that is none":        {"whole", func(w *walk) { w.Replies[0].Say = "Rivers run.<call>" }, "call 0: "},
		"a second attempt that asks anew": {"forgetful", nil, "second attempt"},
		"a program that is not there":     {"whole", func(w *walk) { w.Command[0] = "/nowhere/agent" }, "agent not started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := walkOf(t, c.play)
			if c.change != nil {
				c.change(&w)
			}
			require.ErrorContains(t, walked(t, w).err, c.want)
		})
	}
}

func TestAnExampleThatFailsHasASecondTry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tries string // of the program, of which an example that passes makes two
		says  string
	}{
		"fails once":   {"x", "passed only at the second try: example lines"},
		"fails always": {strings.Repeat("x", 99), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			w := walkOf(t, "whole")
			left := filepath.Join(folder, "left")
			require.NoError(t, os.WriteFile(left, []byte(c.tries), 0o600))
			w.Command = []string{"sh", "-c", `[ ! -s "$1" ] || { n=$(cat "$1"); printf %s "${n#x}" >"$1"; exit 3; }; exec "$0"`, w.Command[0], left}
			text, err := yaml.Marshal(example{Walks: []walk{w}})
			require.NoError(t, err)
			require.NoError(t, os.Mkdir(filepath.Join(folder, "lines"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "lines", exampleFile), text, 0o600))
			var out strings.Builder
			notes := filepath.Join(folder, "notes")
			err = (&cli{Folder: folder, Jobs: 1, secondTries: notes}).run(t.Context(), &out)
			require.Contains(t, out.String(), "lines: failed")
			if c.says == "" {
				require.ErrorContains(t, err, "lines: ")
				require.NoFileExists(t, notes)
				return
			}
			require.NoError(t, err)
			require.Contains(t, out.String(), c.says)
			noted, err := os.ReadFile(notes)
			require.NoError(t, err)
			require.Equal(t, c.says+"\n", string(noted))
		})
	}
}

func TestAStreamIsReplayedByteForByte(t *testing.T) {
	t.Parallel()
	w := walkOf(t, "streamed")
	w.Stream, w.Result = true, "false" // the text comes in pieces
	require.NoError(t, walked(t, w).err)
}

func TestAWalkMayAskAnewIfItSaysWhy(t *testing.T) {
	t.Parallel()
	w := walkOf(t, "forgetful")
	w.Fresh = "it says its process id"
	require.NoError(t, walked(t, w).err)
}

func TestCommentsOfAStreamDoNotCount(t *testing.T) {
	t.Parallel()
	require.Equal(t, "data: 1\n\ndata: 2\n\n", string(withoutComments([]byte("data: 1\n\n: keepalive\n\ndata: 2\n\n"))))
}
