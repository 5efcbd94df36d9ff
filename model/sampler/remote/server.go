package remote

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/model"
)

// requestBytes limits a request: it has room for a million tokens and their commas.
const requestBytes = 16 << 20

// Sampler is the sampler that a server makes reachable.
type Sampler interface {
	model.Sampler
	// Publish makes a version ready, so that the first request does not wait.
	Publish(ctx context.Context, v model.VersionID) error
}

// Server answers requests with a sampler. It is safe for concurrent use. None of its
// goroutines outlives its request.
type Server struct {
	sampler Sampler
	log     *zap.Logger
	mux     *http.ServeMux
}

var _ http.Handler = (*Server)(nil)

// NewServer returns a server. It logs faults to log, unless log is nil.
func NewServer(sampler Sampler, log *zap.Logger) *Server {
	if log == nil {
		log = zap.NewNop()
	}
	s := &Server{sampler: sampler, log: log, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST "+samplePath, s.sample)
	s.mux.HandleFunc("POST "+publishPath, s.publish)
	s.mux.HandleFunc("GET "+loadedPath, func(w http.ResponseWriter, _ *http.Request) {
		out := loadedReply{Versions: []model.VersionID{}}
		if l, ok := sampler.(interface{ Loaded() []model.VersionID }); ok {
			out.Versions = append(out.Versions, l.Loaded()...)
		}
		reply(w, http.StatusOK, out)
	})
	s.mux.HandleFunc("GET "+health.Path, func(w http.ResponseWriter, _ *http.Request) {
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
	if in.Stream {
		s.stream(w, r, in)
		return
	}
	request, timing := in.decodeRequest(), model.Timing{}
	request.Timing = &timing
	c, weights, err := s.sampler.Sample(r.Context(), in.Version, request)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply(w, http.StatusOK, newSampleReply(c, weights, timing))
}

// stream answers with one line for each token as it is sampled, and with a last line that
// is the whole reply, or an error. An error before the first token is answered as for a
// request without a stream.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, in sampleRequest) {
	tw := newTokenWriter(w)
	request, timing := in.decodeRequest(), model.Timing{}
	request.Emit, request.Timing = tw.put, &timing
	c, weights, err := tw.during(func() (model.Completion, string, error) {
		return s.sampler.Sample(r.Context(), in.Version, request)
	})
	switch {
	case err == nil:
		tw.last(newSampleReply(c, weights, timing))
	case tw.begun:
		tw.last(errorReply{s.report(r, err)})
	default:
		s.fail(w, r, err)
	}
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

// fail answers with err. A client that has left gets no answer, and that is not a fault.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return
	}
	reply(w, classify(err).status, errorReply{s.report(r, err)})
}

// report returns err in the form of the protocol, and logs it if it is a fault.
func (s *Server) report(r *http.Request, err error) wireError {
	k := classify(err)
	if k.fault && r.Context().Err() == nil {
		s.log.Warn("request failed", zap.String("path", r.URL.Path), zap.Error(err))
	}
	out := wireError{Code: k.code, Message: err.Error()}
	var long *model.PromptTooLong
	if errors.As(err, &long) {
		out.Tokens, out.Positions = long.Tokens, long.Positions
	}
	return out
}

// read decodes a request. If it can't, it answers with an error and returns false.
func read(w http.ResponseWriter, r *http.Request, in any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, requestBytes))
	d.DisallowUnknownFields() // an unknown setting would be ignored without notice
	if err := d.Decode(in); err != nil {
		reply(w, http.StatusBadRequest, errorReply{wireError{Code: "invalid", Message: fmt.Sprintf("decode request: %v", err)}})
		return false
	}
	return true
}

// unwritable is the answer if numbers are not finite.
const unwritable = `{"error":{"code":"fault","message":"the reply can't be written as JSON"}}`

func reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusServiceUnavailable, []byte(unwritable)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left does not read it
}

// Generation is one line of a Log: what was sampled, for which run and version, and when.
type Generation struct {
	ID           string    `json:"id"` // unique to this generation
	Run          string    `json:"run"`
	Policy       string    `json:"policy"`
	Version      int       `json:"version"`
	Seed         uint64    `json:"seed,string"`
	PromptTokens []int32   `json:"prompt_tokens"`
	Tokens       []int32   `json:"tokens"`
	Weights      string    `json:"weights"`
	Started      time.Time `json:"started"`
	Finished     time.Time `json:"finished"`
}

// Log is a sampler that logs what another sampler samples. It appends one line of JSON to
// a file for each completed generation, before the caller gets the completion. It serves
// external checks of a run; the product itself never reads it. Several processes may
// append to one file.
type Log struct {
	Sampler

	mu   sync.Mutex
	file *os.File
}

// OpenLog returns a log that appends to the file at path, which it makes if it is absent.
func OpenLog(path string, sampler Sampler) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open generation log: %w", err)
	}
	return &Log{Sampler: sampler, file: f}, nil
}

// Sample implements model.Sampler. If a completion can't be logged, Sample returns an
// error in place of it.
func (l *Log) Sample(ctx context.Context, v model.VersionID, r model.DecodeRequest) (model.Completion, string, error) {
	started := time.Now()
	c, weights, err := l.Sampler.Sample(ctx, v, r)
	if err != nil {
		return c, weights, err
	}
	line, err := json.Marshal(Generation{
		ID: rand.Text(), Run: v.Run, Policy: v.Policy, Version: v.Number, Seed: r.Seed, PromptTokens: r.Prompt, Tokens: c.Tokens,
		Weights: weights, Started: started.UTC(), Finished: time.Now().UTC(),
	})
	if err == nil {
		err = l.write(append(line, '\n'))
	}
	if err != nil {
		return model.Completion{}, "", fmt.Errorf("log generation: %w", err)
	}
	return c, weights, nil
}

// write appends a line with one system call, so that lines of several processes
// don't mix.
func (l *Log) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.file.Write(line)
	return err
}

// Close closes the file; the sampler stays open.
func (l *Log) Close() error { return l.file.Close() }
