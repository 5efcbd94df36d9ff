package spec

import "encoding/json"

// Stored reads the spec that a run's row holds. PrepareRun wrote it with all defaults
// of its release; keys that a later release added are absent.
func Stored(raw json.RawMessage) (Spec, error) {
	var s Spec
	err := json.Unmarshal(raw, &s)
	return s, err
}
