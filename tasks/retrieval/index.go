package retrieval

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode"

	_ "modernc.org/sqlite" // includes FTS5

	"github.com/fulgurite/fulgurite/tasks"
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
