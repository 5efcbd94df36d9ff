package track

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/internal/wait"
)

// Writer is a tracker that entries are written to.
type Writer interface {
	// Position returns which entries the tracker has.
	Position() Position
	// Write writes entries in their order. If it returns no error, the tracker keeps them
	// even if this process is killed.
	Write(ctx context.Context, entries []Entry) error
}

// Options are how a run is followed. The zero value reads the store once.
type Options struct {
	// Every is how often the store is asked for news. If it is 0, what is on record is
	// written once.
	Every time.Duration
	// Away is called when the store can't be read, with the reason, and with nil when it
	// can be read again. It is called once for each time that the store is away.
	Away func(error)
	// Wrote is called after entries were written.
	Wrote func([]Entry)
}

// maxWait is the longest time between two tries to read a store that is away.
const maxWait = 10 * time.Second

// ErrRead is wrapped by the error of a writer that reads the store itself and can't.
var ErrRead = errors.New("the store can't be read")

// Follow writes the entries of a run to w, until the run has ended and all are written. A
// store that is away is waited for, unless the record is only written once: then the error
// is returned.
func Follow(ctx context.Context, r *Reader, w Writer, o Options) error {
	pause := o.Every
	for away := false; ; {
		news, err := r.Read(ctx, w.Position())
		if err == nil {
			if away && o.Away != nil {
				o.Away(nil)
			}
			away, pause = false, o.Every
			if err = write(ctx, w, news.Entries, o.Wrote); err == nil && (news.Ended || o.Every == 0) {
				return nil
			}
			if err != nil {
				err = fmt.Errorf("track run %s: %w", news.Run.Name, err)
			}
			if err != nil && !errors.Is(err, ErrRead) {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if o.Every == 0 {
				return err
			}
			if !away && o.Away != nil {
				o.Away(err)
			}
			away, pause = true, min(2*pause, maxWait)
		}
		if !wait.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

func write(ctx context.Context, w Writer, entries []Entry, wrote func([]Entry)) error {
	if len(entries) == 0 {
		return nil
	}
	if err := w.Write(ctx, entries); err != nil {
		return err
	}
	if wrote != nil {
		wrote(entries)
	}
	return nil
}
