package subprocess_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/subprocess"
)

func TestCommandsDoNotSeeTheKeysOfTheFleet(t *testing.T) {
	for _, name := range []string{
		"FULGURITE_FLEET_KEY", "FULGURITE_SERVING_KEY", "FULGURITE_STORE", "PGPASSWORD",
		"TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA", "TEMPORAL_CODEC_AUTH", "TEMPORAL_GRPC_META_AUTHORIZATION",
	} {
		t.Setenv(name, "secret")
	}
	t.Setenv("GRADER_KEY", "its own")
	t.Setenv("TEMPORAL_ADDRESS", "temporal:7233")
	t.Setenv("FULGURITE_FLEET_KEY_FILE", "another variable")
	got := subprocess.Environment()
	require.Contains(t, got, "GRADER_KEY=its own")
	require.Contains(t, got, "TEMPORAL_ADDRESS=temporal:7233")
	require.Contains(t, got, "FULGURITE_FLEET_KEY_FILE=another variable")
	require.NotContains(t, got, "FULGURITE_FLEET_KEY=secret")
	for _, one := range got {
		require.NotContains(t, one, "=secret")
	}
}
