package sandbox_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/agent/sandbox"
)

func TestARouteIsAHostAndAPort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"api.example:443": "api.example:443", "API.example:443": "api.example:443", "localhost:8090": "localhost:8090", "127.0.0.1:1": "127.0.0.1:1",
		"10.0.0.7:65535": "10.0.0.7:65535",
	} {
		r, err := sandbox.ParseRoute(text)
		require.NoError(t, err, text)
		require.Equal(t, want, r.String())
	}
	for _, text := range []string{"", ":80", "api.example", "api.example:", "api.example:0", "api.example:65536", "api.example:http", "[::1]:80", "0.0.0.0:80", "224.0.0.1:80", "a b:80", "a\n127.0.0.1 b:80", "*:80", "u@h:80", "http://a:80"} {
		_, err := sandbox.ParseRoute(text)
		require.Error(t, err, text)
	}
}

func TestTheRouteOfAURLHasThePortOfItsScheme(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"http://127.0.0.1:8090/healthz": "127.0.0.1:8090", "https://tools.example/mcp": "tools.example:443", "http://tools.example": "tools.example:80",
	} {
		r, err := sandbox.RouteOf(url)
		require.NoError(t, err, url)
		require.Equal(t, want, r.String())
	}
	for _, url := range []string{"", "tools.example", "ftp://tools.example", "http://[::1]:80/"} {
		_, err := sandbox.RouteOf(url)
		require.Error(t, err, url)
	}
}

func TestSecretsAreThoseOfTheUserThatExist(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(home, ".ssh"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, ".netrc"), nil, 0o600))
	got := sandbox.Secrets(home)[:2]
	require.Empty(t, cmp.Diff([]string{filepath.Join(home, ".netrc"), filepath.Join(home, ".ssh")}, got))
}

func TestWhatLiesWhereASandboxIsEmptyIsUnfit(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "unfit-") //nolint:usetesting // that of a test may lie elsewhere
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	link := filepath.Join(dir, "python")
	require.NoError(t, os.Symlink("/bin/sh", link))
	store := "/usr/share"
	for name, c := range map[string]struct {
		directory string
		args      []string
		hidden    []string
		want      string
	}{
		"a directory":             {"/tmp/project", []string{"/bin/sh"}, nil, "agent.directory, /tmp/project, lies below /tmp, which is empty in a sandbox"},
		"the empty place itself":  {"/var/tmp", []string{"/bin/sh"}, nil, "agent.directory, /var/tmp, lies below /var/tmp, which is empty in a sandbox"},
		"a link in it":            {"/usr", []string{link, "agent.py"}, nil, "its program, " + link + ", lies below /tmp, which is empty in a sandbox"},
		"a hidden directory":      {store, []string{"/bin/sh"}, []string{"/etc", store}, "/usr/share, which is to be hidden from an isolated agent, is agent.directory: put the store into a directory of its own"},
		"a program of the system": {"/usr", []string{"sh", "agent.sh"}, []string{store}, ""},
		"a name like it":          {"/usr", []string{"/tmpfs/agent"}, nil, ""},
	} {
		require.Equal(t, c.want, sandbox.Unfit(c.directory, c.args, c.hidden), name)
	}
}
