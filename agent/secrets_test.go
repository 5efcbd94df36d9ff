package agent_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent"
)

func TestSecretVariablesAreReadByName(t *testing.T) {
	t.Setenv("TEST_SECRET", " hunter2-hunter2\n")
	t.Setenv("TEST_EMPTY", " ")
	plain := map[string]string{"A": "1"}
	got, err := agent.Variables(plain, map[string]string{"KEY": "TEST_SECRET"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"A": "1", "KEY": "hunter2-hunter2"}, got)
	require.Equal(t, map[string]string{"A": "1"}, plain, "what the spec has stays as it is")
	got, err = agent.Variables(nil, map[string]string{"KEY": "TEST_SECRET"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"KEY": "hunter2-hunter2"}, got)
	_, err = agent.Variables(plain, map[string]string{"KEY": "TEST_EMPTY"})
	require.EqualError(t, err, "agent.secret_environment.KEY: the environment variable TEST_EMPTY is not set for this worker: start it with the value there")
}

func TestSecretsAreHiddenInWhatIsKept(t *testing.T) {
	t.Setenv("TEST_TOKEN", "Bearer abcdef-123456")
	t.Setenv("TEST_SHORT", "abc")
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("the token is " + r.Header.Get("Authorization")[len("Bearer "):] + ", abc"))
	}))
	t.Cleanup(s.Close)
	names := []string{"TEST_SHORT", "TEST_TOKEN"}
	l := agent.HideSecrets(agent.Service{URL: s.URL, SecretHeaders: map[string]string{"Authorization": "TEST_TOKEN"}}, names)
	got, err := l.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, "the token is [secret], abc", got.Text, "a text of three letters is in many others")
	status = http.StatusInternalServerError
	got, err = l.Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Contains(t, got.Message, "the token is [secret]")
	status = http.StatusServiceUnavailable
	_, err = l.Launch(t.Context(), job("demo"))
	for e := err; e != nil; e = errors.Unwrap(e) {
		require.NotContains(t, e.Error(), "abcdef-123456")
	}
	require.ErrorContains(t, err, "the token is [secret]")

	cause := errors.New("no abcdef-123456 here")
	failing := agent.Func(func(context.Context, agent.Task, agent.Env) (string, error) {
		return "", errors.Join(agent.ErrRetry, cause)
	})
	got, err = agent.HideSecrets(failing, names).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, agent.Retry, got.Failure)
	require.Contains(t, got.Message, "no [secret] here")
	_, err = agent.HideSecrets(broken{cause}, names).Launch(t.Context(), job("demo"))
	require.ErrorIs(t, err, cause, "it is still known what went wrong")
	require.EqualError(t, err, "no [secret] here")
	_, err = agent.HideSecrets(broken{cause}, nil).Launch(t.Context(), job("demo"))
	require.EqualError(t, err, cause.Error())
}

// replies is a launcher with one result.
type replies agent.Result

func (r replies) Launch(context.Context, agent.Job) (agent.Result, error) {
	return agent.Result(r), nil
}

func TestAResultIsGradedWithTheWordsOfASecret(t *testing.T) {
	key := "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END PRIVATE KEY-----"
	account := `{"type": "service_account", "project": "weather", "private_key": "0123456789abcdef"}`
	t.Setenv("TEST_PEM", key)
	t.Setenv("TEST_ACCOUNT", account)
	t.Setenv("TEST_PHRASE", "correct horse battery")
	t.Setenv("TEST_BASIC", "Basic dXNlcjpwYXNz")
	names := []string{"TEST_PEM", "TEST_ACCOUNT", "TEST_PHRASE", "TEST_BASIC"}
	for text, want := range map[string]string{
		`the "weather" is PRIVATE, a battery is "service_account",`: `the "weather" is PRIVATE, a battery is "service_account",`,
		"MIIEvQIBADANBgkqhkiG":                       "MIIEvQIBADANBgkqhkiG",
		"Basic arithmetic, correct horse":            "Basic arithmetic, correct horse",
		"it is " + account + ".":                     "it is [secret].",
		key:                                          "[secret]",
		"dXNlcjpwYXNz or Basic dXNlcjpwYXNz":         "[secret] or Basic [secret]",
		"correct horse battery, correct horse batt!": "[secret], correct horse batt!",
	} {
		got, err := agent.HideSecrets(replies{Text: text, Stderr: "x " + text + " x"}, names).Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, want, got.Text)
		require.NotContains(t, got.Stderr, "MIIEvQIBADANBgkqhkiG", "a line of a key is hidden in what is not graded")
		require.NotContains(t, got.Stderr, "0123456789abcdef")
	}
}

func TestASecretThatABoundHasCutIsHidden(t *testing.T) {
	t.Setenv("TEST_CUT", "Bearer qwertyuiop-asdfghjkl")
	names := []string{"TEST_CUT"}
	printing := func(script string) agent.Result {
		l := agent.HideSecrets(agent.Command{Args: sh(script), Scratch: t.TempDir()}, names)
		got, err := l.Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		return got
	}
	// The first 1024 bytes are kept, and the last 3072: 10 bytes of the token at both sides.
	const cut = `printf '%01014d'; printf 'qwertyuiop-asdfghjkl'; printf '%05000d'; printf 'qwertyuiop-asdfghjkl'; printf '%03062d'; `
	got := printing(cut + `echo; exit 3`)
	require.Contains(t, got.Output.Stdout, "0[secret]\n[")
	require.Contains(t, got.Output.Stdout, " bytes left out]\n[secret]0")
	got = printing(`{ printf 'qwertyuiop-asdfghjkl'; printf '%08182d'; } >&2; exit 3`)
	require.Len(t, got.Stderr, 8182+len("[secret]"))
	require.NotContains(t, got.Stderr, "asdfghjkl")

	for text, want := range map[string]string{
		"refused: qwertyuiop-asdf":          "refused: [secret]",
		"refused: qwerty":                   "refused: [secret]",
		"refused: qwert":                    "refused: qwert", // in other texts by chance
		"p-asdfghjkl is refused":            "[secret] is refused",
		"refused: qwertyuiop-asdfghjkl, qw": "refused: [secret], qw",
	} {
		got, err := agent.HideSecrets(replies{Text: text, Failure: agent.Error, Message: text}, names).Launch(t.Context(), job("demo"))
		require.NoError(t, err)
		require.Equal(t, want, got.Message)
		_, err = agent.HideSecrets(broken{errors.New(text)}, names).Launch(t.Context(), job("demo"))
		require.EqualError(t, err, want)
	}
	got, err := agent.HideSecrets(replies{Text: "refused: qwertyuiop-asdf"}, names).Launch(t.Context(), job("demo"))
	require.NoError(t, err)
	require.Equal(t, "refused: qwertyuiop-asdf", got.Text, "a result is graded as it is")
}

// broken is a launcher that fails.
type broken struct{ err error }

func (b broken) Launch(context.Context, agent.Job) (agent.Result, error) {
	return agent.Result{}, b.err
}
