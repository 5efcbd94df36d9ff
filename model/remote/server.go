package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/model"
)

// requestBytes bounds a request: a million tokens and their commas.
const requestBytes = 16 << 20

// Sampler is what a server makes reachable.
type Sampler interface {
	model.Sampler
	// Publish makes a version ready, so that the first request does not wait.
	Publish(ctx context.Context, v model.VersionID) error
}

// Server answers for a sampler. It is safe for concurrent use and starts no
// goroutine.
type Server struct {
	sampler Sampler
	log     *zap.Logger
	mux     *http.ServeMux
}

var _ http.Handler = (*Server)(nil)

// NewServer returns a server. Its log gets faults; nil drops them.
func NewServer(sampler Sampler, log *zap.Logger) *Server {
	if log == nil {
		log = zap.NewNop()
	}
	s := &Server{sampler: sampler, log: log, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST "+samplePath, s.sample)
	s.mux.HandleFunc("POST "+publishPath, s.publish)
	s.mux.HandleFunc("GET "+healthPath, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) sample(w http.ResponseWriter, r *http.Request) {
	var in sampleRequest
	if !read(w, r, &in) {
		return
	}
	c, weights, err := s.sampler.Sample(r.Context(), in.Version, model.DecodeRequest{
		Prompt: in.Prompt, MaxTokens: in.MaxTokens, Temperature: in.Temperature, Stop: in.Stop, Seed: in.Seed,
	})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, sampleReply{c.Tokens, c.Logprobs, c.Finish, weights})
}

func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	var in publishRequest
	if !read(w, r, &in) {
		return
	}
	if err := s.sampler.Publish(r.Context(), in.Version); err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, struct{}{})
}

// fail answers with err. A client that left gets no answer, and its leaving is
// no fault.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	k := classify(err)
	if k.fault {
		s.log.Warn("request failed", zap.String("path", r.URL.Path), zap.Error(err))
	}
	reply(w, k.status, errorReply{wireError{k.code, err.Error()}})
}

// read decodes a request, or answers that it can't be.
func read(w http.ResponseWriter, r *http.Request, in any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestBytes))
	d.DisallowUnknownFields() // a setting that is not obeyed would go unnoticed
	if err := d.Decode(in); err != nil {
		reply(w, http.StatusBadRequest, errorReply{wireError{"invalid", fmt.Sprintf("decode request: %v", err)}})
		return false
	}
	return true
}

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // numbers that are not finite
		status = http.StatusServiceUnavailable
		body = []byte(`{"error":{"code":"fault","message":"the reply can't be written as JSON"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who left does not read it
}
