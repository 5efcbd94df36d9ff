package spec

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
)

// Digest names the content of s: "sha256:<hex>" of its JSON with all defaults
// written out. Two files that mean the same have one digest, whatever their
// order, layout and format, and whether they repeat defaults.
func Digest(s Spec) string {
	data, err := json.Marshal(s.WithDefaults())
	if err != nil {
		// Only NaN and infinities can't be encoded; Validate refuses them.
		data = fmt.Appendf(nil, "%#v", s)
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}
