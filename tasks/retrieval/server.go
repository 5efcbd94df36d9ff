package retrieval

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/protocol"
)

// longestBody is the most bytes of a request.
const longestBody = 1 << 20

// question is the body of a search.
type question struct {
	Query string `json:"query" jsonschema:"words to look for"`
	Limit int    `json:"limit,omitempty" jsonschema:"how many paragraphs at most, 1 to 50; 5 if left out"`
}

// answer is the result of a search, the best first.
type answer struct {
	Paragraphs []Found `json:"paragraphs"`
}

// server answers searches.
type server struct {
	index *Index
	log   *zap.Logger
}

// NewServer returns a handler that serves an index: GET and POST /search with query and
// limit, /mcp with the tool "search" by the Model Context Protocol's streamable HTTP, and
// /healthz, whose answer identifies this process in a header.
func NewServer(index *Index, version string, log *zap.Logger) http.Handler {
	s := server{index, log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /search", s.get)
	mux.HandleFunc("POST /search", s.post)
	instance := rand.Text()
	mux.HandleFunc("GET "+health.Path, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(protocol.InstanceHeader, instance) })
	tools := mcp.NewServer(&mcp.Implementation{Name: "fulgurite-tools", Version: version}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "search", Description: "Finds the paragraphs that fit a query best."},
		func(ctx context.Context, _ *mcp.CallToolRequest, q question) (*mcp.CallToolResult, answer, error) {
			found, err := index.Search(ctx, q.Query, q.Limit)
			return nil, answer{found}, err
		})
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	return mux
}

func (s server) get(w http.ResponseWriter, r *http.Request) {
	q := question{Query: r.URL.Query().Get("query")}
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if q.Limit, err = strconv.Atoi(text); err != nil {
			s.write(w, http.StatusBadRequest, map[string]string{"error": "limit is not a whole number"})
			return
		}
	}
	s.search(w, r, q)
}

func (s server) post(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, longestBody)).Decode(&q); err != nil {
		s.write(w, http.StatusBadRequest, map[string]string{"error": `want {"query": text, "limit": number}: ` + err.Error()})
		return
	}
	s.search(w, r, q)
}

func (s server) search(w http.ResponseWriter, r *http.Request, q question) {
	found, err := s.index.Search(r.Context(), q.Query, q.Limit)
	switch {
	case err == nil:
		s.write(w, http.StatusOK, answer{found})
	case errors.Is(err, ErrQuery):
		s.write(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
	case r.Context().Err() != nil: // the client no longer waits
	default:
		s.log.Error("search failed", zap.Error(err))
		s.write(w, http.StatusInternalServerError, map[string]string{"error": err.Error()})
	}
}

func (s server) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		s.log.Debug("reply not delivered", zap.Error(err))
	}
}
