package process

import (
	"sync"
	"sync/atomic"
	"time"
)

// Meter adds up what a program wrote to both its outputs.
type Meter struct {
	limit      int64
	began      time.Time
	written    atomic.Int64
	last       atomic.Int64 // when it wrote last, in nanoseconds after began
	once       sync.Once
	onProgress func()
	onExceeded func()
}

// NewMeter begins now. Progress is called at each write, exceeded once when more than
// the limit was written; a limit of 0 is none.
func NewMeter(limit int64, progress, exceeded func()) *Meter {
	return &Meter{limit: limit, began: time.Now(), onProgress: progress, onExceeded: exceeded}
}

// Write counts p.
func (m *Meter) Write(p []byte) (int, error) {
	m.onProgress()
	m.last.Store(int64(time.Since(m.began)))
	m.written.Add(int64(len(p)))
	if m.Exceeded() {
		m.once.Do(m.onExceeded)
	}
	return len(p), nil
}

// Exceeded reports whether more than the limit was written.
func (m *Meter) Exceeded() bool { return m.limit > 0 && m.written.Load() > m.limit }

// Quiet is how long nothing has been written.
func (m *Meter) Quiet() time.Duration { return time.Since(m.began) - time.Duration(m.last.Load()) }
