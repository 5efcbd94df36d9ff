package gateway

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/wire"
)

const (
	// maxBody is the most bytes of a request if the configuration does not say.
	maxBody = 32 << 20
	// bodyTimeout is how long a client may pause while it sends a request.
	bodyTimeout = time.Minute
)

// readBody reads a request, compressed with gzip or not.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := g.config.BodyBytes
	if r.ContentLength > limit {
		w.Header().Set("Connection", "close") // rather than read the rest
		return nil, tooLarge(limit)
	}
	connection := http.NewResponseController(w)
	in := io.Reader(&deadlineReader{http.MaxBytesReader(w, r.Body, limit), connection})
	// After the body, a read only notices that the client has left, and has no deadline.
	defer func() { _ = connection.SetReadDeadline(time.Time{}) }()
	switch encoding := r.Header.Get("Content-Encoding"); strings.ToLower(encoding) {
	case "", "identity":
	case "gzip":
		packed, err := gzip.NewReader(in)
		if err != nil {
			return nil, unreadable(err, limit)
		}
		in = packed
	default:
		return nil, &wire.Failure{
			Status: http.StatusUnsupportedMediaType, Code: "unsupported_encoding",
			Message: fmt.Sprintf("the request's body is encoded with %q: send it plain or with gzip", encoding),
		}
	}
	var buffer bytes.Buffer
	if r.ContentLength > 0 {
		buffer.Grow(int(min(r.ContentLength, 1<<20)) + bytes.MinRead)
	}
	_, err := buffer.ReadFrom(io.LimitReader(in, limit+1))
	body := buffer.Bytes()
	if err != nil {
		w.Header().Set("Connection", "close") // the rest of it is not read
		return nil, unreadable(err, limit)
	}
	if int64(len(body)) > limit {
		return nil, tooLarge(limit)
	}
	return body, nil
}

// deadlineReader reads a body. A read fails if no byte arrives within bodyTimeout.
type deadlineReader struct {
	io.Reader
	connection *http.ResponseController
}

func (p *deadlineReader) Read(b []byte) (int, error) {
	// Not every connection has deadlines; without one, reads wait.
	_ = p.connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	return p.Reader.Read(b)
}

func unreadable(err error, limit int64) error {
	var over *http.MaxBytesError
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &wire.Failure{Status: http.StatusRequestTimeout, Code: protocol.CodeTimeout, Message: "the rest of the request did not come", Cause: err}
	}
	return &wire.Failure{Status: http.StatusBadRequest, Code: "invalid_body", Message: "the request's body could not be read", Cause: err}
}

func tooLarge(limit int64) error {
	return &wire.Failure{
		Status: http.StatusRequestEntityTooLarge, Code: protocol.CodeTooLarge,
		Message: fmt.Sprintf("the request has more than %d bytes", limit),
	}
}
