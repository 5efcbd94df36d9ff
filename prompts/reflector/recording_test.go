package reflector_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/fulgurite/fulgurite/prompts/reflector"
)

func record(t *testing.T, r reflector.Reflector, file string) reflector.Reflector {
	t.Helper()
	out, err := reflector.Record(r, file)
	require.NoError(t, err)
	t.Cleanup(out.Close)
	return out
}

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "recording.jsonl")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestARecordingRepliesAsTheReflectorDid(t *testing.T) {
	t.Parallel()
	file, asked := filepath.Join(t.TempDir(), "recording.jsonl"), 0
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"model":"m-2","choices":[{"finish_reason":"length","message":{"content":"a\u0000 <b>\nc"}}],"usage":{"prompt_tokens":5,"completion_tokens":3}}`))
	})
	live := open(t, reflector.Options{Type: reflector.OpenAI, URL: url, Model: "m", File: file})
	require.Equal(t, open(t, reflector.Options{Type: reflector.OpenAI, URL: url, Model: "m"}).Key(question), live.Key(question))
	want, err := live.Reflect(t.Context(), question)
	require.NoError(t, err)
	again, err := live.Reflect(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, want, again)
	require.Equal(t, 1, asked, "what is on record is not asked again")

	r := open(t, reflector.Options{Type: reflector.Recorded, File: file})
	got, err := r.Reflect(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, want, got)
	other := question
	other.Try = 1
	_, err = r.Reflect(t.Context(), other)
	require.ErrorIs(t, err, reflector.ErrNotRecorded)
	require.True(t, reflector.Final(err))
	require.ErrorContains(t, err, file)
	other.MaxTokens = reflector.DefaultMaxTokens
	require.ErrorContains(t, err, reflector.QuestionKey(other))

	before := r.Key(question)
	require.NotEqual(t, before, r.Key(other))
	_, err = live.Reflect(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, before, open(t, reflector.Options{Type: reflector.Recorded, File: file}).Key(question), "a longer recording keeps the keys")
}

func TestARecordingGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "recording.jsonl")
	first := record(t, &fake{model: "m"}, file)
	want, err := first.Reflect(t.Context(), question)
	require.NoError(t, err)
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	for cut := range len(whole) + 1 {
		// Whatever a killed process had written of its next line, it is written anew.
		file := write(t, string(whole)+string(whole[:cut]))
		f := &fake{model: "m"}
		r := record(t, f, file)
		got, err := r.Reflect(t.Context(), question)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Zero(t, f.asked)
		_, err = r.Reflect(t.Context(), reflector.Question{User: "next"})
		require.NoError(t, err)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, 2+cut/(len(whole)-1), strings.Count(string(text), "\n"), "cut at %d:\n%s", cut, text)
		_, err = reflector.New(reflector.Options{Type: reflector.Recorded, File: file})
		require.NoError(t, err)
	}
}

func TestARecordingIsOfOneReflector(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "recording.jsonl")
	_, err := record(t, &fake{model: "m"}, file).Reflect(t.Context(), question)
	require.NoError(t, err)
	_, err = record(t, &fake{model: "other"}, file).Reflect(t.Context(), question)
	require.ErrorIs(t, err, reflector.ErrNotRecorded)
	require.ErrorContains(t, err, "the reply of another reflector")
}

func TestErrorsAreNotRecorded(t *testing.T) {
	t.Parallel()
	f := &fake{model: "m", err: errors.New("busy")}
	r := record(t, f, filepath.Join(t.TempDir(), "recording.jsonl"))
	_, err := r.Reflect(t.Context(), question)
	require.ErrorIs(t, err, f.err)
	f.err = nil
	got, err := r.Reflect(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, "xx", got.Text)
}

func TestTheSameQuestionAtOnceHasOneReply(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "recording.jsonl")
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"choices":[{"message":{"content":"` + r.RemoteAddr + `"}}]}`))
	})
	r := open(t, reflector.Options{Type: reflector.OpenAI, URL: url, Model: "m", File: file})
	replies := make([]reflector.Reply, 8)
	var g errgroup.Group
	for i := range replies {
		g.Go(func() (err error) {
			replies[i], err = r.Reflect(t.Context(), question)
			return err
		})
	}
	require.NoError(t, g.Wait())
	for _, one := range replies {
		require.Equal(t, replies[0], one)
	}
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), "\n"))
}

func TestRecordingsMayBeWrittenByHand(t *testing.T) {
	t.Parallel()
	q := question
	q.MaxTokens = reflector.DefaultMaxTokens
	key := reflector.QuestionKey(q)
	file := write(t, "\n"+`{"key":"`+key+`","reply":{"text":"first\u0000"}}`+"\n"+`{"key":"`+key+`","reply":{"text":"second"}}`)
	got, err := open(t, reflector.Options{Type: reflector.Recorded, File: file}).Reflect(t.Context(), question)
	require.NoError(t, err)
	require.Equal(t, "first\uFFFD", got.Text)

	for text, want := range map[string]string{
		"{}\n":                    `line 1: want {"key": …`,
		"\nnonsense\n":            "line 2: invalid character",
		`{"key":"a"}` + "\n[]\n":  "line 2: json: cannot unmarshal array",
		"<html>Sign in</html>\n":  "line 1: invalid character '<'",
		`{"key":1,"reply":{}}x\n`: "",
	} {
		_, err := reflector.New(reflector.Options{Type: reflector.Recorded, File: write(t, text)})
		if want == "" {
			require.NoError(t, err, "a line that was not finished is left out")
			continue
		}
		require.ErrorContains(t, err, "optimizer.reflector.file: read recording")
		require.ErrorContains(t, err, want)
	}
}
