package gateway

import (
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/wire"
)

// maxName is the most bytes of a request's name; longer names are ignored.
const maxName = 64

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
	if name := r.Header.Get(protocol.RequestNameHeader); len(name) <= maxName {
		request.Name = name
	}
	reasked := count(protocol.RetryHeader)
	request.Reasked = reasked > 0
	request.Again = count(protocol.SDKRetryHeader) > reasked || request.Reasked && request.Name == ""
}
