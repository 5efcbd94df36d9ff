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

// broken is a launcher that fails.
type broken struct{ err error }

func (b broken) Launch(context.Context, agent.Job) (agent.Result, error) {
	return agent.Result{}, b.err
}
