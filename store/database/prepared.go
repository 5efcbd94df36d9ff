package database

import (
	"context"
	"database/sql"
	"sync"
)

// prepared makes queries of an SQLite file, each of which is parsed once for each connection.
// Parsing takes as long as a small query. It keeps every query that it was ever asked, so
// queries must have constant texts.
type prepared struct {
	*sql.DB

	mu    sync.Mutex
	stmts map[string]*sql.Stmt
}

// QueryContext makes a query.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

func (p *prepared) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	p.mu.Lock()
	s, ok := p.stmts[query]
	p.mu.Unlock()
	if ok {
		return s, nil
	}
	made, err := p.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.stmts[query]; ok { // another goroutine was faster
		_ = made.Close() // it has read nothing
		return s, nil
	}
	p.stmts[query] = made
	return made, nil
}

// Close closes the statements, and not the database.
func (p *prepared) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.stmts {
		_ = s.Close() // the database is closed next
	}
	clear(p.stmts)
	return nil
}
