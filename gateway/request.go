package gateway

import (
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	// retryHeader counts how often the forwarder in the agent's worker has asked
	// the same before without getting a whole reply.
	retryHeader = "X-Fulgurite-Retry"
	// sdkRetryHeader is what the common SDKs send when they ask again. The
	// forwarder adds its own count to it.
	sdkRetryHeader = "X-Stainless-Retry-Count"
	// exchangeHeader names one request of the agent, so that a forwarder which asks
	// again gets the reply to that one and to no other like it.
	exchangeHeader = "X-Fulgurite-Exchange"
	// maxExchange is the most bytes of such a name; longer ones are not looked at.
	maxExchange = 64
)

// readRequest reads and decodes a request of an API.
func (g *Gateway) readRequest(w http.ResponseWriter, r *http.Request, api wire.API) (*wire.Request, error) {
	body, err := g.readBody(w, r)
	if err != nil {
		return nil, err
	}
	return wire.Decode(api, body)
}

// identify notes who asks, and for which time, as the headers and the path say.
func identify(r *http.Request, request *conversation.Request) {
	count := func(name string) int {
		n, _ := strconv.Atoi(r.Header.Get(name)) // absent or odd: never
		return n
	}
	request.Agent = r.PathValue("agent")
	if name := r.Header.Get(exchangeHeader); len(name) <= maxExchange {
		request.Exchange = name
	}
	reasked := count(retryHeader)
	request.Reasked = reasked > 0
	request.Again = count(sdkRetryHeader) > reasked || request.Reasked && request.Exchange == ""
}
