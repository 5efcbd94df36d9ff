// Package retrieval is a tool for agents: it finds the paragraphs of a corpus that match
// a query best, by BM25. It serves this over HTTP, both plain and as the Model Context
// Protocol (https://modelcontextprotocol.io).
//
// It is not a search engine for the web, and has no embeddings. It knows nothing about
// runs: an agent's searches are on record as the agent's tool calls.
//
// Guarantees: the same corpus and the same query give the same paragraphs in the same
// order, whatever was asked before.
package retrieval

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode"

	"github.com/fulgurite/fulgurite/internal/health"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/tasks"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/zap"
	_ "modernc.org/sqlite" // includes FTS5
)

// Limits of a search.
const (
	usualLimit = 5
	maxLimit   = 50
	// maxWords is how many words of a query are searched.
	maxWords = 64
)

// ErrQuery is wrapped when a query can't be searched for.
var ErrQuery = errors.New("unusable query")

// Found is a paragraph that fits a query.
type Found struct {
	Title string  `json:"title"`
	Text  string  `json:"text"`
	Score float64 `json:"score"` // BM25; more is better
}

// Index is a corpus in memory that several goroutines can search.
type Index struct {
	db    *sql.DB
	count int
}

// NewIndex indexes paragraphs by the words of their titles and texts, stemmed for
// English. A repeated paragraph is left out. A corpus without paragraphs is an error.
func NewIndex(ctx context.Context, corpus []tasks.Paragraph) (*Index, error) {
	if len(corpus) == 0 {
		return nil, errors.New("index corpus: it is empty")
	}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("index corpus: %w", err)
	}
	db.SetMaxOpenConns(1) // each connection would have a separate in-memory database
	x := &Index{db: db}
	if err := x.fill(ctx, corpus); err != nil {
		return nil, errors.Join(fmt.Errorf("index corpus: %w", err), db.Close())
	}
	return x, nil
}

func (x *Index) fill(ctx context.Context, corpus []tasks.Paragraph) error {
	if _, err := x.db.ExecContext(ctx, `CREATE VIRTUAL TABLE paragraph USING fts5(title, text, tokenize = 'porter unicode61')`); err != nil {
		return err
	}
	tx, err := x.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after a commit there is nothing to undo
	insert, err := tx.PrepareContext(ctx, `INSERT INTO paragraph (title, text) VALUES (?, ?)`)
	if err != nil {
		return err
	}
	defer insert.Close()
	known := map[tasks.Paragraph]bool{}
	for _, p := range corpus {
		if known[p] {
			continue
		}
		known[p] = true
		if _, err := insert.ExecContext(ctx, p.Title, p.Text); err != nil {
			return err
		}
	}
	x.count = len(known)
	return tx.Commit()
}

// Count returns the number of paragraphs.
func (x *Index) Count() int { return x.count }

// Search returns the paragraphs that contain words of the query, the best first. It
// returns at most limit paragraphs, or 5 if limit is 0. It returns ErrQuery for a query
// without words, and for a limit that is negative or more than 50.
func (x *Index) Search(ctx context.Context, query string, limit int) ([]Found, error) {
	words := strings.FieldsFunc(query, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) })
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("%w: it has no words", ErrQuery)
	case limit < 0 || limit > maxLimit:
		return nil, fmt.Errorf("%w: limit %d: give 1 to %d", ErrQuery, limit, maxLimit)
	case limit == 0:
		limit = usualLimit
	}
	words = words[:min(len(words), maxWords)]
	for i, word := range words {
		words[i] = `"` + word + `"` // so that AND, OR and NOT are words
	}
	rows, err := x.db.QueryContext(ctx, `SELECT title, text, -bm25(paragraph) FROM paragraph WHERE paragraph MATCH ? ORDER BY bm25(paragraph), rowid LIMIT ?`,
		strings.Join(words, " OR "), limit)
	if err != nil {
		return nil, fmt.Errorf("search corpus: %w", err)
	}
	defer rows.Close()
	found := []Found{}
	for rows.Next() {
		var f Found
		if err := rows.Scan(&f.Title, &f.Text, &f.Score); err != nil {
			return nil, fmt.Errorf("search corpus: %w", err)
		}
		found = append(found, f)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("search corpus: %w", err)
	}
	return found, nil
}

// Close releases the corpus.
func (x *Index) Close() error { return x.db.Close() }

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
