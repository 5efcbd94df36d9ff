package backup

import (
	"context"
	"time"
)

// Progress says how far a backup or a restore has come: with tables, or with blobs.
type Progress struct {
	Table  string // that is being copied
	Number int    // of the table or of the blob, from 1
	Tables int    // how many there are; 0 while blobs are copied
	Blobs  int    // how many there are; 0 while tables are copied
	Bytes  int64  // of all tables, or of all blobs, so far
}

const (
	// tellEvery is how often the caller hears of progress.
	tellEvery = 5 * time.Second
	// pingEvery is how often a connection is used that would be idle. What lies between may
	// forget a connection after some minutes.
	pingEvery = 30 * time.Second
)

// progress tells the caller from time to time how far the work is, however many parts it has,
// and keeps a connection in use.
type progress struct {
	tell         func(Progress) // may be nil
	ping         func(context.Context) error
	now          Progress
	told, pinged time.Time
}

func newProgress(tell func(Progress)) *progress {
	return &progress{tell: tell, told: time.Now()}
}

// begin begins another part of the work. ping, unless it is nil, is called during it.
func (p *progress) begin(part Progress, ping func(context.Context) error) {
	p.now, p.ping, p.pinged = part, ping, time.Now()
}

// table begins the next table.
func (p *progress) table(name string) { p.now.Table, p.now.Number = name, p.now.Number+1 }

// add adds bytes of the table, or those of another blob.
func (p *progress) add(ctx context.Context, bytes int64) error {
	p.now.Bytes += bytes
	if p.now.Tables == 0 {
		p.now.Number++
	}
	now := time.Now()
	if p.tell != nil && now.Sub(p.told) >= tellEvery {
		p.told = now
		p.tell(p.now)
	}
	return p.keep(ctx)
}

// keep uses the connection if it was idle for long.
func (p *progress) keep(ctx context.Context) error {
	if now := time.Now(); p.ping != nil && now.Sub(p.pinged) >= pingEvery {
		p.pinged = now
		return p.ping(ctx)
	}
	return nil
}
