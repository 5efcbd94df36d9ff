package spec_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/spec"
)

// Runs that are older than sampling.engine have no such key in their stored specs, and
// their digests stay the same.
func TestTheSamplingEngineFollowsTorchAlone(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"": "", "model: {engine: gomlx}\n": "", "model: {engine: torch}\n": "torch",
	} {
		s := parse(t, minimal+written).WithDefaults()
		require.Equal(t, want, s.Sampling.Engine, written)
	}
	s := parse(t, minimal+"model: {engine: torch}\nsampling: {engine: native}\n").WithDefaults()
	require.Equal(t, "native", s.Sampling.Engine)
}

func TestDigestIsOfTheMeaning(t *testing.T) {
	t.Parallel()
	want := spec.Digest(parse(t, minimal))
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, want)
	same, err := spec.Parse([]byte(`{"training":{"steps":3,"tasks_per_step":16},"grader":{"type":"exact"},
		"sampling":{"temperature":1.0},"tasks":{"train":"arithmetic:train"},"agent":{"func":"calculator"}}`), "a.json")
	require.NoError(t, err)
	require.Equal(t, want, spec.Digest(same), "order, format and written defaults don't matter")
	require.Equal(t, want, spec.Digest(same.WithDefaults()))
	require.NotEqual(t, want, spec.Digest(parse(t, minimal+"seed: 2\n")))
}

// The digests of finished runs are on record, so this value may never change.
func TestDigestIsTheSameInEveryVersion(t *testing.T) {
	t.Parallel()
	require.Equal(t, "sha256:60536bf1af23db44ff1dc555b1df537bf8093347bb00b1fa6c4ced025e6220c3", spec.Digest(parse(t, minimal)))
}
