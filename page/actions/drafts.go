package actions

import (
	"slices"
	"sync"
)

// maxDrafts bounds the specs that are kept, each of at most maxOfSpec bytes. The oldest
// makes room.
const maxDrafts = 32

// draft is a spec that a person sent to be planned, with what became of it. It has an
// address of its own, so that reloads and the browser's way back lose nothing of what was
// typed.
type draft struct {
	key    string
	person string // who alone may see it
	id     string // of the action that starts it
	spec   string
	name   string
	plan   *Plan
	// problem says why there is no plan, or why the run was not started; code is the
	// status that goes with it.
	problem string
	code    int
}

// drafts are the specs that were planned last, in memory. Its zero value is empty. It is
// safe for concurrent use.
type drafts struct {
	mu   sync.Mutex
	kept []draft // the oldest first
}

// add keeps a draft and returns its key.
func (d *drafts) add(one draft) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	one.key = newID()
	d.kept = append(d.kept, one)
	if len(d.kept) > maxDrafts {
		d.kept = slices.Delete(d.kept, 0, 1)
	}
	return one.key
}

// find returns the draft of a person.
func (d *drafts) find(key, person string) (draft, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.kept, func(one draft) bool { return one.key == key && one.person == person })
	if i < 0 {
		return draft{}, false
	}
	return d.kept[i], true
}
