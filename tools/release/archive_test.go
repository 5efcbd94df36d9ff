package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// This test is in package main because package main can't be imported.

// build builds a program in a repository with one commit, each time at a new path.
func build(t *testing.T) (folder, binary string) {
	t.Helper()
	folder = t.TempDir()
	binary = filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example.com/small\n\ngo 1.27\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte("package main\n\nfunc main() { println(\"hello\") }\n"), 0o600))
	for _, arguments := range [][]string{
		{"init", "--quiet"},
		{"add", "."},
		{"-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "--quiet", "--no-gpg-sign", "--message=Say hello"},
	} {
		git := exec.CommandContext(t.Context(), "git", arguments...)
		git.Dir = folder
		git.Env = append(os.Environ(), "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
		text, err := git.CombinedOutput()
		require.NoError(t, err, "%s", text)
	}
	compile(t, folder, binary)
	return folder, binary
}

func compile(t *testing.T, folder, binary string) {
	t.Helper()
	compiler := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=true", "-o", binary, ".")
	compiler.Dir = folder
	text, err := compiler.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

func TestEqualCommitsGiveEqualArchives(t *testing.T) {
	t.Parallel()
	var first []byte
	for range 2 {
		_, binary := build(t)
		o, err := originOf(binary)
		require.NoError(t, err)
		require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), o.time.UTC())
		require.Contains(t, o.version, "20260102030405")
		packed, err := archive("small_"+o.version, []string{binary}, o.time)
		require.NoError(t, err)
		if first == nil {
			first = packed
		}
		require.True(t, string(first) == string(packed), "two archives of one commit differ")

		file, folder := filepath.Join(t.TempDir(), "a.tar.gz"), t.TempDir()
		require.NoError(t, os.WriteFile(file, packed, 0o600))
		require.NoError(t, command(t.Context(), nil, "tar", "-xzf", file, "-C", folder))
		text, err := exec.CommandContext(t.Context(), filepath.Join(folder, "small_"+o.version, "small")).CombinedOutput()
		require.NoError(t, err)
		require.Equal(t, "hello\n", string(text))
	}
}

func TestFilesThatDifferFromTheCommitAreRefused(t *testing.T) {
	t.Parallel()
	folder, binary := build(t)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "other.go"), []byte("package main\n"), 0o600))
	compile(t, folder, binary)
	_, err := originOf(binary)
	require.ErrorContains(t, err, "files differ from the commit")
}

func TestAnArchiveThatIsChangedIsNotTried(t *testing.T) {
	t.Parallel()
	r := release{out: t.TempDir()}
	require.NoError(t, r.add("a.tar.gz", []byte("whole")))
	require.NoError(t, r.check(t.Context(), "a.tar.gz"))
	require.NoError(t, os.WriteFile(filepath.Join(r.out, "a.tar.gz"), []byte("other"), 0o600))
	require.ErrorContains(t, r.check(t.Context(), "a.tar.gz"), "check the digests of a.tar.gz")
}

func TestAFullDirectoryIsNoPlaceForARelease(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "old"), nil, 0o600))
	r := release{out: folder}
	require.ErrorContains(t, r.write(t.Context(), nil), "is not empty")
}
