package signals

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/wire"
)

// repeated reports whether call i makes the same request as an earlier call, or its reply
// calls the same tools with the same arguments as the call before it. Further choices
// of one request repeat nothing.
func (r *reader) repeated(i int) bool {
	c := r.History[i]
	for _, p := range r.History[:i] {
		if p.Key == c.Key && p.Key != "" && (c.Exchange == "" || origin(p.Exchange) != origin(c.Exchange)) {
			return true
		}
	}
	p := r.preceding(i)
	return p >= 0 && len(r.asked[i]) > 0 && sameTools(r.asked[p], r.asked[i])
}

// preceding is the call that call i continues, else the last call of the same agent that
// is no other choice of the same request, else -1.
func (r *reader) preceding(i int) int {
	c := r.History[i]
	for k := i - 1; k >= 0; k-- {
		if c.Parent >= 0 && r.History[k].Seq == c.Parent {
			return k
		}
	}
	for k := i - 1; k >= 0; k-- {
		p := r.History[k]
		if r.callers[k] == r.callers[i] && (p.Exchange == "" || origin(p.Exchange) != origin(c.Exchange)) {
			return k
		}
	}
	return -1
}

// origin is the request of an exchange: the gateway names further choices of one
// request by its name, a slash and their number.
func origin(exchange string) string {
	if at := strings.LastIndexByte(exchange, '/'); at >= 0 && strings.Trim(exchange[at+1:], "0123456789") == "" {
		return exchange[:at]
	}
	return exchange
}

// sameTools reports whether two replies ask for the same, whatever the ids.
func sameTools(a, b []toolCall) bool {
	return slices.EqualFunc(a, b, func(x, y toolCall) bool { return x.name == y.name && x.arguments == y.arguments })
}

// message is the part of a message that tells states apart. Ids were issued and mean
// nothing.
type message struct {
	Role dialog.Role `json:"role"`
	Text string      `json:"text"`
}

// state names the state in which call i was made: the agent, and the messages after the
// last one of the assistant. Those are the environment's answer for an agent that keeps
// its history, and the whole request for one that describes the state anew. Earlier
// messages are left out, since otherwise no two states of agents with a history would be
// equal; so is text that the run's replay.ignore matches. The state of a prompt without
// messages is its tokens. Spans are not part of it, because they arrive late for some
// attempts.
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
