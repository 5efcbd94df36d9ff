package conversation

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"

	"github.com/fulgurite/fulgurite/wire"
)

// choiceDigits is how many hex digits at the end of a stem number the choice. They are enough
// for wire.MaxReplies.
const choiceDigits = 2

// newStem returns a random stem for the first choice of a request to a served version. The
// stems of the other choices differ from it in their last digits alone, because a reply has
// the id of its first choice, and people judge the others too.
func newStem() string {
	var b [11]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:]) + "00"
}

// choiceStem returns the stem of another choice of the same request.
func choiceStem(stem string, choice int) string {
	return fmt.Sprintf("%s%0*x", stem[:len(stem)-choiceDigits], choiceDigits, choice)
}

// replyIDs matches the ids of replies of all APIs.
var replyIDs = regexp.MustCompile(`^(?:chatcmpl-|cmpl-|resp_|msg_)[0-9a-f]{24}$`)

// ChoiceID returns the id of the call for one choice of a recorded reply of a served version,
// counted from 0; that of the first is the id of the reply. ok is false if a reply with this
// id has no such choice. Whether the call is on record is another question.
func ChoiceID(reply string, choice int) (id string, ok bool) {
	switch {
	case choice == 0:
		return reply, true
	case choice < 0 || choice >= wire.MaxReplies || !replyIDs.MatchString(reply):
		return "", false
	}
	first, err := strconv.ParseUint(reply[len(reply)-choiceDigits:], 16, 8)
	if err != nil || first != 0 {
		return "", false // it is not the first choice of a request
	}
	return choiceStem(reply, choice), true
}

// findChoices finds the calls of a request to a served version that asks for several choices.
// All of them are of one reply: that of which a call would answer the request if it asked for
// one choice, or else a new one. Calls and pending calls that are missing have to be made.
func (h *recordedCalls) findChoices(key string, pendingOnly bool) []Slot {
	slots := make([]Slot, h.request.N)
	call, p := h.find(key, "", h.request.Again, pendingOnly, nil)
	switch {
	case call != nil && h.fill(slots, key, call.stem):
	case p != nil && h.fill(slots, key, p.stem):
	default:
		stem := newStem()
		for i := range slots {
			slots[i] = Slot{stem: choiceStem(stem, i)}
		}
	}
	return slots
}

// fill fills slots with what there is of the choices that belong to a stem. It reports false if
// one of them can't answer the request, because it has answered another one.
func (h *recordedCalls) fill(slots []Slot, key, stem string) bool {
	again := h.request.Again
	for i := range slots {
		slots[i] = Slot{stem: choiceStem(stem, i)}
		for _, call := range h.repeatsOf(key).calls {
			if call.stem != slots[i].stem {
				continue
			}
			if call.redacted || !again && (call.delivered || call.writers > 0) {
				return false
			}
			slots[i].call = call
		}
		for _, p := range h.pending[key] {
			if p.stem != slots[i].stem {
				continue
			}
			if !again && (p.waiters > 0 || p.closed) {
				return false
			}
			slots[i].pending = p
		}
	}
	return true
}
