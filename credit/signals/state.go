package signals

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// turn is what of a message tells states apart. Ids were issued and mean nothing.
type turn struct {
	Role dialog.Role `json:"role"`
	Text string      `json:"text"`
}

// state names what the policy of call i newly saw: who asks, and the messages after
// the last of the assistant, which are the environment's answer for an agent that
// keeps its history, and all there is for one that describes the state anew in each
// request. What was said before is not in it, or no two states of agents with a
// history would ever be equal; nor is what the run's replay.ignore matches. A prompt
// without messages is its tokens. Spans have no part in it: those of one attempt may
// come when those of another do not.
func (r *reading) state(i int) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	// Strings, and structs of strings, always encode; a hash takes all that is written.
	_ = e.Encode(r.askers[i])
	if q := r.requests[i]; q != nil && q.API != wire.Completions && len(q.Dialog) > 0 {
		for _, m := range observation(q.Dialog) {
			_ = e.Encode(turn{m.Role, strings.TrimSpace(r.ignored.without(m.Content))})
		}
	} else {
		_ = binary.Write(h, binary.LittleEndian, r.History[i].Prompt)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// observation is what follows the last message of the assistant. A dialog that ends
// with one has the assistant go on from it, and is new as a whole.
func observation(all []dialog.Message) []dialog.Message {
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Role == dialog.Assistant {
			if i == len(all)-1 {
				return all
			}
			return all[i+1:]
		}
	}
	return all
}

// patterns match what does not tell two requests of a run apart.
type patterns []*regexp.Regexp

// compile leaves out what is no pattern, which a checked spec does not have.
func compile(expressions []string) patterns {
	var all patterns
	for _, e := range expressions {
		if p, err := regexp.Compile(e); err == nil {
			all = append(all, p)
		}
	}
	return all
}

func (p patterns) without(text string) string {
	for _, r := range p {
		text = r.ReplaceAllLiteralString(text, "")
	}
	return text
}
