package signals

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// message is the part of a message that tells states apart. Ids were issued and mean
// nothing.
type message struct {
	Role dialog.Role `json:"role"`
	Text string      `json:"text"`
}

// state names what the policy of call i newly saw: the agent, and the messages after
// the last of the assistant. Those are the environment's answer for an agent that
// keeps its history, and the whole request for one that describes the state anew.
// Earlier messages are left out, or no two states of agents with a history would be
// equal; so is what the run's replay.ignore matches. The state of a prompt without
// messages is its tokens. Spans do not count: those of one attempt may arrive when
// those of another do not.
func (r *reader) state(i int) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	// Strings, and structs of strings, always encode; a hash takes all that is written.
	_ = e.Encode(r.askers[i])
	if q := r.requests[i]; q != nil && q.API != wire.Completions && len(q.Dialog) > 0 {
		for _, m := range dialog.Latest(q.Dialog) {
			_ = e.Encode(message{m.Role, strings.TrimSpace(r.ignored.Without(m.Content))})
		}
	} else {
		_ = binary.Write(h, binary.LittleEndian, r.History[i].Prompt)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
