package sqlmatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
)

// ErrDatabase is wrapped when a database can't be read on this machine.
var ErrDatabase = errors.New("unusable database")

// ErrGold is wrapped when a gold query fails on its database, or is over a limit.
var ErrGold = errors.New("unusable gold query")

// Metric is how results are compared.
type Metric string

const (
	// Spider compares multisets of rows, as the package's doc says.
	Spider Metric = "spider"
	// BIRD compares sets of rows.
	BIRD Metric = "bird"
)

// Comparison is the input of Match.
type Comparison struct {
	Metric   Metric // absent means Spider
	Database string // path of the SQLite file
	Gold     string // the correct query
	Query    string // the query to grade
	// KeepDistinct keeps the word DISTINCT, which the official evaluation of Spider
	// removes. BIRD's never removes it.
	KeepDistinct bool
	// Most is how long each query may take. It also limits the number of its steps, so
	// that verdicts hardly depend on the machine. 0 means 10 seconds.
	Most time.Duration
}

const (
	defaultMost = 10 * time.Second
	// maxIdle is how many connections are kept open for the next query.
	maxIdle = 64
	// maxGolds is how many cells of results of gold queries are remembered.
	maxGolds = 4 << 20
)

// Databases compares queries on databases. It keeps connections and the results of gold
// queries for later comparisons, as long as the file does not change. The zero value is
// ready for use, by several goroutines at once.
type Databases struct {
	patterns patterns

	mu    sync.Mutex
	idle  []idleConnection // the connection that was used last is the last one
	golds map[goldQuery]table
	cells int // number of cells in golds
}

// file is one state of a database's file.
type file struct {
	path     string
	size     int64
	modified time.Time
	wal      wal // changes that are not in the file itself
}

type idleConnection struct {
	file file
	*connection
}

type goldQuery struct {
	file file
	text string // the query after prepare
	sets bool
}

// Match finds out whether a query returns the same result as the gold query. Errors wrap
// ErrDatabase or ErrGold, or are errors of ctx. A query that fails is wrong, and its error
// is a part of the outcome.
func (d *Databases) Match(ctx context.Context, c Comparison) (Outcome, error) {
	c = d.prepared(c)
	files, err := c.files()
	if err != nil {
		return Outcome{}, err
	}
	for _, path := range files {
		out, err := d.matchOn(ctx, path, c)
		if err != nil {
			return Outcome{}, err
		}
		if !out.Right {
			out.Text = on(out.Text, path, files)
			return out, nil
		}
	}
	return Outcome{Right: true, Text: textRight}, nil
}

// CheckGold returns an error of Match if a gold query can't be used. empty is true if the
// gold query returns no rows on any of the databases. Then every query that returns no
// rows is right.
func (d *Databases) CheckGold(ctx context.Context, c Comparison) (empty bool, err error) {
	c = d.prepared(c)
	files, err := c.files()
	if err != nil {
		return false, err
	}
	empty = true
	for _, path := range files {
		want, err := d.goldOn(ctx, path, c)
		if err != nil {
			return false, err
		}
		empty = empty && len(want.rows) == 0
	}
	return empty, nil
}

// prepared returns a comparison with defaults filled in, and with the queries that are
// executed.
func (d *Databases) prepared(c Comparison) Comparison {
	if c.Most == 0 {
		c.Most = defaultMost
	}
	if c.Metric != BIRD {
		c.Gold, c.Query = d.patterns.prepare(c.Gold, c.KeepDistinct), d.patterns.prepare(c.Query, c.KeepDistinct)
	}
	return c
}

// files returns the databases on which a query must be right.
func (c Comparison) files() ([]string, error) {
	if c.Metric == BIRD {
		return []string{c.Database}, nil
	}
	return testSuite(c.Database)
}

// testSuite returns the databases on which a query must be right. If the folder has the
// database's name, these are all databases in the folder, which is the layout of Spider's
// test suites. Otherwise it is the database alone.
func testSuite(path string) ([]string, error) {
	folder := filepath.Dir(path)
	if filepath.Base(folder) != strings.TrimSuffix(filepath.Base(path), ".sqlite") {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDatabase, err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".sqlite") && !strings.HasPrefix(e.Name(), ".") { // hidden files are other programs' notes
			files = append(files, filepath.Join(folder, e.Name()))
		}
	}
	if !slices.Contains(files, path) {
		files = append(files, path) // opening it reports the error
	}
	return files, nil
}

// goldOn returns the result of a gold query on one database.
func (d *Databases) goldOn(ctx context.Context, path string, of Comparison) (table, error) {
	f, c, err := d.connect(path)
	if err != nil {
		return table{}, err
	}
	defer d.give(f, c)
	return d.gold(ctx, f, c, of)
}

// connect returns a connection that nobody else uses.
func (d *Databases) connect(path string) (file, *connection, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return file{}, nil, fmt.Errorf("%w: %w", ErrDatabase, err)
	}
	f := file{path, stat.Size(), stat.ModTime(), walOf(path)}
	c, err := d.take(f)
	if err != nil {
		return f, nil, fmt.Errorf("%w: open %s: %w", ErrDatabase, path, err)
	}
	return f, c, nil
}

func (d *Databases) matchOn(ctx context.Context, path string, of Comparison) (Outcome, error) {
	f, c, err := d.connect(path)
	if err != nil {
		return Outcome{}, err
	}
	defer d.give(f, c)
	want, err := d.gold(ctx, f, c, of)
	if err != nil {
		return Outcome{}, err
	}
	c.allow(ctx, of.Most)
	got, err := d.compare(c, want, of)
	var failure sqliteError
	switch {
	case err == nil && got.right:
		return Outcome{Right: true, Text: textRight}, nil
	case err == nil:
		return Outcome{Text: "The query " + got.differs + "."}, nil
	case ctx.Err() != nil:
		return Outcome{}, ctx.Err()
	case errors.As(err, &failure) && failure.broken():
		return Outcome{}, fmt.Errorf("%w: read %s: %w", ErrDatabase, path, err)
	}
	return Outcome{Text: failed(err, of.Query)}, nil
}

// compare executes the query and compares its result with that of the gold query. It
// stops reading as soon as the two can't be equal.
func (d *Databases) compare(c *connection, want table, of Comparison) (result, error) {
	b := bounds{rows: len(want.rows), bytes: want.bytes, columns: want.columns}
	if len(want.rows) == 0 {
		b.columns = -1 // without rows, the number of columns doesn't matter
	}
	if of.Metric == BIRD {
		return compareSets(c, want, of.Query, b.columns)
	}
	got, err := c.query(of.Query, b)
	switch {
	case errors.Is(err, errColumns), errors.Is(err, errRows), errors.Is(err, errBytes):
		return unequal(err, want, got.columns), nil
	case err != nil:
		return result{}, err
	}
	return compared(want, got, d.patterns.ordered(of.Gold)), nil
}

// compareSets compares by the rules of BIRD.
func compareSets(c *connection, want table, query string, columns int) (result, error) {
	golds, found := newSet(want), map[string]bool{}
	count, err := c.each(query, columns, func(row []any, _ int) error {
		key, known := golds.key(row)
		if !known || !golds.rows[key] {
			return errRows
		}
		found[key] = true
		return nil
	})
	switch {
	case errors.Is(err, errColumns):
		return unequal(err, want, count), nil
	case errors.Is(err, errRows) && len(want.rows) == 0:
		return unequal(err, want, count), nil
	case errors.Is(err, errRows):
		return result{differs: fmt.Sprintf("returns a row that is none of the right ones: %s right", expected(want))}, nil
	case err != nil:
		return result{}, err
	case len(found) < len(golds.rows):
		return result{differs: fmt.Sprintf("returns %d of the %s that are right", len(found), readable.Count(len(golds.rows), "different row"))}, nil
	}
	return result{right: true}, nil
}

// gold returns the result of a gold query.
func (d *Databases) gold(ctx context.Context, f file, c *connection, of Comparison) (table, error) {
	sets := of.Metric == BIRD
	key := goldQuery{f, of.Gold, sets}
	d.mu.Lock()
	t, known := d.golds[key]
	d.mu.Unlock()
	if known {
		return t, nil
	}
	c.allow(ctx, of.Most)
	t, err := c.query(of.Gold, bounds{rows: maxRows, bytes: maxBytes, columns: -1, distinct: sets})
	var failure sqliteError
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return t, ctx.Err()
	case errors.As(err, &failure) && failure.broken():
		return t, fmt.Errorf("%w: read %s: %w", ErrDatabase, f.path, err)
	case errors.Is(err, errRows), errors.Is(err, errBytes):
		return t, fmt.Errorf("%w on %s: it returns more than %d rows or %d MiB", ErrGold, f.path, maxRows, maxBytes>>20)
	default:
		return t, fmt.Errorf("%w on %s: %w", ErrGold, f.path, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	size := 1 + len(t.rows)*t.columns + t.bytes/16
	if d.cells += size; d.golds == nil || d.cells > maxGolds {
		d.golds, d.cells = map[goldQuery]table{}, size
	}
	d.golds[key] = t
	return t, nil
}

// take returns a connection that nobody else uses.
func (d *Databases) take(f file) (*connection, error) {
	d.mu.Lock()
	for i := len(d.idle) - 1; i >= 0; i-- {
		if one := d.idle[i]; one.file == f {
			d.idle = slices.Delete(d.idle, i, i+1)
			d.mu.Unlock()
			return one.connection, nil
		}
	}
	d.mu.Unlock()
	return open(f.path)
}

// give keeps a connection for later. If there are too many, it closes the one whose last
// use is the longest ago.
func (d *Databases) give(f file, c *connection) {
	c.allow(context.Background(), 0) // drops the query's context
	d.mu.Lock()
	defer d.mu.Unlock()
	d.idle = append(d.idle, idleConnection{f, c})
	if len(d.idle) > maxIdle {
		_ = d.idle[0].close() // nothing was written
		d.idle = slices.Delete(d.idle, 0, 1)
	}
}

// Close closes the connections that no comparison is using.
func (d *Databases) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var faults []error
	for _, one := range d.idle {
		faults = append(faults, one.close())
	}
	d.idle = nil
	return errors.Join(faults...)
}
