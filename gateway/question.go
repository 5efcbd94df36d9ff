package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/internal/protocol"
)

// maxExchange is the most bytes of an exchange's name; longer ones are not looked at.
const maxExchange = 64

// errAgain sends a request back to the beginning, since what it waited for or was
// sampled after is not what stands.
var errAgain = errors.New("the attempt has changed")

// question is a request on its way to a reply.
type question struct {
	order    *order
	body     []byte
	agent    string
	exchange string // empty if the client does not say
	reasked  bool   // the forwarder repeats this exchange
	again    bool   // the client repeats an earlier request
	looked   bool   // the journal was read again for it
	resumed  bool   // the dialog has what it continues by name
	named    *call  // that
}

func questionOf(r *http.Request, body []byte, o *order) *question {
	count := func(name string) int {
		n, _ := strconv.Atoi(r.Header.Get(name)) // absent or odd: never
		return n
	}
	q := &question{order: o, body: body, agent: r.PathValue("agent"), exchange: r.Header.Get(protocol.ExchangeHeader)}
	if len(q.exchange) > maxExchange {
		q.exchange = ""
	}
	reasked := count(protocol.RetryHeader)
	q.reasked = reasked > 0
	q.again = count(protocol.SDKRetryHeader) > reasked || q.reasked && q.exchange == ""
	return q
}

// nth is the name of the exchange for one of several choices.
func (q *question) nth(choice int) string {
	if choice == 0 || q.exchange == "" {
		return q.exchange
	}
	return fmt.Sprintf("%s/%d", q.exchange, choice)
}
