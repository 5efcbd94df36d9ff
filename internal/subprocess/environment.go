package subprocess

import (
	"os"
	"slices"
	"strings"
)

// concealed returns the names of the variables that give access to the fleet and its store. No
// command needs them.
func concealed() []string {
	return []string{
		"FULGURITE_FLEET_KEY", "FULGURITE_SERVING_KEY", "FULGURITE_METRICS_KEY", "FULGURITE_EMBEDDINGS_KEY",
		"FULGURITE_STORE", "FULGURITE_TEMPORAL_DATABASE", "PGPASSWORD", "TEMPORAL_API_KEY",
	}
}

// Environment returns the environment of this process without the keys of the fleet and the
// password of the store. Commands that a spec names get it: their own keys are there.
func Environment() []string {
	return slices.DeleteFunc(os.Environ(), func(one string) bool {
		name, _, _ := strings.Cut(one, "=")
		return slices.Contains(concealed(), name)
	})
}
