package fleet_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/store/blob"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

func TestPromptsAreFoundByTheirDigest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	blobs, err := blob.Open(dir)
	require.NoError(t, err)
	texts, err := prompts.New(map[string]prompts.Prompt{"writer": {Text: "Write."}})
	require.NoError(t, err)
	want, err := prompts.NewSet(texts, []prompts.Rule{{Prompt: "writer", Match: prompts.Match{Role: prompts.System}}})
	require.NoError(t, err)
	found := fleet.NewPrompts(blobs)
	_, err = found.Set(want.Digest())
	require.ErrorContains(t, err, "read prompts "+want.Digest())

	digest, err := blobs.Put(t.Context(), want.Encode())
	require.NoError(t, err)
	require.Equal(t, want.Digest(), digest, "the digest of a set is that of its blob")
	got, err := found.Set(digest)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, digest[len("sha256:"):][:2])))
	_, err = found.Set(digest)
	require.NoError(t, err, "they never change")

	none, err := found.Set("")
	require.NoError(t, err)
	require.True(t, none.Empty())
	other, err := blobs.Put(t.Context(), []byte(`{"prompts":{"writer":{"text":""}},"rules":[]}`))
	require.NoError(t, err)
	_, err = found.Set(other)
	require.ErrorContains(t, err, `prompt "writer": text: empty`)
}
