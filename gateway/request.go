package gateway

import (
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/wire"
)

// maxExchange is the most bytes of an exchange's name; longer names are ignored.
const maxExchange = 64

// readRequest reads and decodes a request of an API.
func (g *Gateway) readRequest(w http.ResponseWriter, r *http.Request, api wire.API) (*wire.Request, error) {
	body, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	return wire.Decode(api, body)
}

// identify notes which agent asks and whether it asks again, from the headers and the
// path.
func identify(r *http.Request, request *conversation.Request) {
	count := func(name string) int {
		n, _ := strconv.Atoi(r.Header.Get(name)) // absent or malformed: 0
		return n
	}
	request.Agent = r.PathValue("agent")
	if name := r.Header.Get(protocol.ExchangeHeader); len(name) <= maxExchange {
		request.Exchange = name
	}
	reasked := count(protocol.RetryHeader)
	request.Reasked = reasked > 0
	request.Again = count(protocol.SDKRetryHeader) > reasked || request.Reasked && request.Exchange == ""
}
