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
		if p.Key == c.Key && p.Key != "" && (c.RequestName == "" || origin(p.RequestName) != origin(c.RequestName)) {
			return true
		}
	}
	p := r.preceding(i)
	return p >= 0 && len(r.asked[i]) > 0 && sameTools(r.asked[p], r.asked[i])
}

// preceding returns the call that call i continues. If there is none, it returns the last
// call of the same agent that is not another choice of the same request. Otherwise it
// returns -1.
func (r *reader) preceding(i int) int {
	c := r.History[i]
	for k := i - 1; k >= 0; k-- {
		if c.Parent >= 0 && r.History[k].Seq == c.Parent {
			return k
		}
	}
	for k := i - 1; k >= 0; k-- {
		p := r.History[k]
		if r.callers[k] == r.callers[i] && (p.RequestName == "" || origin(p.RequestName) != origin(c.RequestName)) {
			return k
		}
	}
	return -1
}

// origin returns the name of the request that an exchange belongs to. The gateway names
// the further choices of a request by the request's name, a slash and their number.
func origin(exchange string) string {
	if at := strings.LastIndexByte(exchange, '/'); at >= 0 && strings.Trim(exchange[at+1:], "0123456789") == "" {
		return exchange[:at]
	}
	return exchange
}

// sameTools reports whether two replies ask for the same tool calls. It ignores ids.
func sameTools(a, b []toolCall) bool {
	return slices.EqualFunc(a, b, func(x, y toolCall) bool { return x.name == y.name && x.arguments == y.arguments })
}

// message is the part of a message by which states differ. Ids are not part of it,
// because they carry no meaning.
type message struct {
	Role dialog.Role `json:"role"`
	Text string      `json:"text"`
}

// state returns a name for the state in which call i was made: the agent, and the
// messages after the assistant's last one. For an agent that keeps its history, these are
// the environment's answer. For an agent that describes the whole state in each request,
// they are the whole request. Earlier messages are left out, because otherwise no two
// states of agents with a history would be equal. Text that the run's replay.ignore
// matches is left out as well. The state of a prompt without messages is its tokens.
// Spans are not part of the state, because they arrive late for some attempts.
func (r *reader) state(i int) string {
	h := sha256.New()
	e := json.NewEncoder(h)
	// Strings, and structs of strings, always encode, and writing to a hash never fails.
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
