package update

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// Target is a version to make, and its inputs.
type Target struct {
	ID     model.VersionID
	Parent int    // -1 for version 0
	Batch  string // empty for version 0
}

// check returns an error if the version on record under the id was made from other
// inputs. There is only one batch for each step, so no retry could fix this.
func (t Target) check(v model.Version) error {
	if v.Parent == t.Parent && (v.Batch == t.Batch || v.Batch == "") { // external trainers may leave out the batch
		return nil
	}
	return Final(fmt.Errorf("version %s exists and was made from version %d with batch %q, not from version %d with batch %q: two runs write under one name, or the store was put back to an earlier state; start a run with another name",
		t.ID, v.Parent, v.Batch, t.Parent, t.Batch))
}

// basis returns the digest of everything that decides a number of updates. Saved progress
// with another basis is not continued.
func basis(parts any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encode what decides the updates: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
