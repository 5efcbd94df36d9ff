package state_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/cmd/fulgurite/internal/state"
)

// A shown command finds what the environment names by itself.
//
//nolint:paralleltest // it sets environment variables
func TestShownCommandsLeaveOutWhatTheEnvironmentNames(t *testing.T) {
	t.Setenv("FULGURITE_STORE", "/fleet/f.db")
	t.Setenv("FULGURITE_BLOBS", "/fleet/blobs")
	s := &state.Flags{Dir: "/state"}
	require.Equal(t, "fulgurite status --dir /state run", s.Command("status", "run"), "of a command that takes no store")
	s.UseRecords(state.RecordFlags{Store: "/fleet/f.db", Blobs: "/fleet/blobs"})
	require.Equal(t, "fulgurite status --dir /state run", s.Command("status", "run"))
	require.Equal(t, "fulgurite-worker migrate", s.WorkerCommand("migrate"))
	s.UseRecords(state.RecordFlags{Store: "other.db", Blobs: "/other"})
	other, err := filepath.Abs("other.db")
	require.NoError(t, err)
	require.Equal(t, "fulgurite status --dir /state --store "+other+" --blobs /other run", s.Command("status", "run"))
	require.Equal(t, "fulgurite-worker migrate --store "+other+" --blobs /other", s.WorkerCommand("migrate"))
	s.UseRecords(state.RecordFlags{Store: "postgres://ada:secret@db/f", Blobs: "/fleet/blobs"})
	require.Equal(t, "fulgurite status --dir /state --store URL run", s.Command("status", "run"), "no password")
}

//nolint:paralleltest // it sets environment variables
func TestShownWorkerCommandsNameTheRecordsThatTheyNeed(t *testing.T) {
	t.Setenv("FULGURITE_STORE", "")
	t.Setenv("FULGURITE_BLOBS", "")
	s := &state.Flags{Dir: "/state"}
	require.Equal(t, "fulgurite-worker migrate --store URL --blobs DIR", s.WorkerCommand("migrate"))
	require.Equal(t, "fulgurite-worker health", s.WorkerCommand("health"))
}
