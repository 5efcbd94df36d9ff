package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
)

func TestWhatIsRecordedIsWhatWasSetLastOrWhatTheSpecSays(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newFakeRecords(t)
	_, _, err := s.store.CreateRun(ctx, record.Run{Name: "talks", Spec: []byte(`{"model":{"codec":"compact"},"traffic":{"record":"with-consent","on_failure":"serve","max_calls":7}}`)})
	require.NoError(t, err)
	v := s.versions[0]
	v.Run = "talks"
	s.put(t, v)
	require.NoError(t, s.store.Promote(ctx, record.Promotion{Run: "talks", Policy: "main", DecisionID: "d", Version: 0, Previous: -1}))
	recording := func(reference string) model.Served {
		served, err := s.Resolve(ctx, reference)
		require.NoError(t, err)
		return served
	}
	require.Equal(t, model.RecordNothing, recording("demo").Recording)
	require.False(t, recording("demo").DeliverUnrecorded)
	require.Equal(t, model.RecordConsent, recording("talks@0").Recording)
	require.True(t, recording("talks").DeliverUnrecorded)
	require.Equal(t, 7, recording("talks").MaxCalls)
	require.Equal(t, 1000, recording("demo").MaxCalls, "it may be recorded although its spec says nothing of traffic")
	for setting, want := range map[string]model.Recording{"none": model.RecordNothing, "all": model.RecordAll, "with-consent": model.RecordConsent} {
		for _, run := range []string{"talks", "demo"} {
			require.NoError(t, s.store.PutTrafficSetting(ctx, run, setting, "ada", ""))
			require.Equal(t, want, recording(run).Recording, run)
		}
	}
}

func TestAVersionWhoseFilesAreGoneSaysSo(t *testing.T) {
	t.Parallel()
	s := newFakeRecords(t)
	served, err := s.Resolve(t.Context(), "demo@1")
	require.NoError(t, err)
	require.False(t, served.Collected)
}
