package subprocess

import (
	"os"
	"slices"
	"strings"
)

// metadata begins the names of the variables with headers that Temporal's clients send, such as
// Authorization.
const metadata = "TEMPORAL_GRPC_META_"

// OfFleet reports whether a variable gives access to the fleet, its store or its Temporal. No
// command, server or agent needs such a variable.
func OfFleet(name string) bool {
	return strings.HasPrefix(name, metadata) || slices.Contains([]string{
		"FULGURITE_FLEET_KEY", "FULGURITE_SERVING_KEY", "FULGURITE_METRICS_KEY", "FULGURITE_EMBEDDINGS_KEY",
		"FULGURITE_STORE", "FULGURITE_TEMPORAL_DATABASE", "PGPASSWORD", "PGSSLPASSWORD",
		"TEMPORAL_API_KEY", "TEMPORAL_TLS_CLIENT_KEY_DATA", "TEMPORAL_CODEC_AUTH",
	}, name)
}

// Environment returns the environment of this process without the keys of the fleet and the
// password of the store. Commands that a spec names get it: their own keys are there.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(one string) bool {
		name, _, _ := strings.Cut(one, "=")
		return OfFleet(name)
	})
}
