package activities

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/fulgurite/fulgurite/model"
)

// lineage is what a version that is asked for comes from.
type lineage struct {
	id     model.VersionID
	parent int    // -1 for version 0
	batch  string // empty for version 0
}

// check refuses a version that stands under the id but comes from something else.
// There is one batch for each step, so that no retry could mend it.
func (l lineage) check(v model.Version) error {
	if v.Parent == l.parent && (v.Batch == l.batch || v.Batch == "") { // trainers of others need not say
		return nil
	}
	return invalid(fmt.Errorf("version %s stands and was made from version %d with batch %q, not from version %d with batch %q: two runs write under one name, or the store was put back to an earlier state; start a run with another name",
		l.id, v.Parent, v.Batch, l.parent, l.batch))
}

// basis is the digest of what decides a number of updates. Whoever has another
// one does not go on from their state.
func basis(parts any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encode what decides the updates: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// unreadable adds to err, met when something that version id is made from was
// read, what a person can do. It is no invalid error: a blob that is put back mends
// it, and until then the step is seen to wait.
func unreadable(err error, id model.VersionID) error {
	remedy := "start the run again under another name"
	if id.Number > 0 {
		id.Number--
		remedy = fmt.Sprintf("start another run from the newest version that is whole, from %s on down (fulgurite export, then model.base)", id)
	}
	return fmt.Errorf("%w; put a copy of the file back, and it goes on by itself; without one, %s", err, remedy)
}
