package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/wire"
)

// route adds a handler. It explains the handler's errors in the shape of api, or if api
// is empty, of the API that the client speaks.
func (g *Gateway) route(pattern string, api wire.API, handle func(http.ResponseWriter, *http.Request) error) {
	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		shape := api
		if shape == "" {
			shape = shapeOf(r)
		}
		tracked := &trackedWriter{ResponseWriter: w}
		defer func() {
			if p := recover(); p != nil {
				g.answerPanic(tracked, r, shape, p)
			}
		}()
		if err := handle(tracked, r); err != nil {
			g.answerError(tracked, r, shape, err)
		}
	})
}

func (g *Gateway) answerError(w http.ResponseWriter, r *http.Request, shape wire.API, err error) {
	f := explain(shape, err)
	g.logFault(r, f, err)
	var call *callError
	if errors.As(err, &call) && counts(r, f) {
		defer g.countRefusal(r, call.conversation.Address(), f)()
	}
	if errors.Is(err, errBrokenOff) {
		panic(http.ErrAbortHandler)
	}
	refuse(w, shape, f)
}

// answerPanic reports a fault of ours to the client. If the reply has begun, it breaks
// the connection.
func (g *Gateway) answerPanic(w *trackedWriter, r *http.Request, shape wire.API, p any) {
	if p == http.ErrAbortHandler { //nolint:errorlint // it is the value that was thrown
		panic(p)
	}
	g.config.Log.Error("handler panicked", zap.String("path", r.URL.Path), zap.Any("panic", p), zap.ByteString("stack", debug.Stack()))
	if w.begun {
		panic(http.ErrAbortHandler)
	}
	refuse(w, shape, fault(fmt.Errorf("panic: %v", p)))
}

// trackedWriter records whether a reply has begun.
type trackedWriter struct {
	http.ResponseWriter
	begun bool
}

func (w *trackedWriter) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *trackedWriter) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b) //nolint:wrapcheck // a writer adds nothing
}

// Unwrap lets http.ResponseController reach the connection.
func (w *trackedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// postsOnly refuses other methods at an endpoint.
func postsOnly(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Allow", http.MethodPost)
	return &wire.Failure{
		Status: http.StatusMethodNotAllowed, Code: "method_not_allowed",
		Message: fmt.Sprintf("%s %s is not served here: use POST", r.Method, endpoint(r)),
	}
}

// unknownEndpoint refuses paths that are not served.
func unknownEndpoint(_ http.ResponseWriter, r *http.Request) error {
	at := endpoint(r)
	if !strings.HasPrefix(at, "/v1/") {
		return unknownURL(nil, "%s %s is not served here: base URLs of OpenAI's clients end in /v1, as OPENAI_BASE_URL does, and those of Anthropic's before it", r.Method, at)
	}
	return unknownURL(nil, "%s %s is not served here", r.Method, at)
}

// endpoint returns the path of a request below the base URL of its attempt.
func endpoint(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.Path, "/r/")
	if !ok {
		return r.URL.Path
	}
	for range 5 { // run, step, task, sample, attempt
		_, rest, _ = strings.Cut(rest, "/")
	}
	if named, ok := strings.CutPrefix(rest, "n/"); ok {
		_, rest, _ = strings.Cut(named, "/")
	}
	return "/" + rest
}
