// Package database is the SQL database that a store uses: SQLite or PostgreSQL, with
// transactions of two durabilities, migrations, and lists of columns by which rows are
// written and read. It knows no table by name; package store does.
package database

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
)

// DB is the interface to the operations in which the two databases differ. It is safe for
// concurrent use.
type DB interface {
	// Read returns the connection for queries outside of a transaction.
	Read() Querier
	// ReadOften is Read for queries that each request makes. They are parsed once, so their
	// texts must be constant.
	ReadOften() Querier
	// Write runs op in a transaction that commits as durably as asked, and
	// returns op's error or the commit's. op may run more than once.
	Write(ctx context.Context, d Durability, op func(Tx) error) error
	// Schema returns the number of the database's schema, 0 if it has no tables.
	Schema(ctx context.Context) (int, error)
	// Migrate makes the tables of an empty database, and reports how many migrations that
	// took: 0 if the tables exist.
	Migrate(ctx context.Context) (applied int, err error)
	// Settle makes the database work off what earlier writes left to be done later, while
	// others write. Who writes very much calls it between two writes, so that it does not
	// pile up until others wait for it. Errors are logged: nothing is lost, and a later call
	// does it.
	Settle(ctx context.Context)
	// Scrub makes the database give up or overwrite the space of removed rows. If whole is
	// true, all of it is rewritten, and other writers wait.
	Scrub(ctx context.Context, whole bool) error
	// Clock returns an SQL expression for the database's current time, in nanoseconds
	// since 1970.
	Clock() string
	// Close waits for running writes and disconnects from the database.
	Close() error
}

// Durability says which failures an acknowledged write survives.
type Durability int

// The durabilities.
const (
	SurvivesKill      Durability = iota // a kill of any process
	SurvivesPowerLoss                   // a power loss of the machine; all earlier writes then survive it, too
)

// Open connects to the database at url: "postgres://…", "sqlite:///absolute/path",
// or the path of an SQLite file, which is made if it does not exist, with its
// directory. A file that exists but can't be written is opened for reading. A database
// with another schema than this program's is refused; one without tables is not.
func Open(ctx context.Context, url string, log *zap.Logger) (DB, error) {
	path, err := FilePath(url)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	var db DB
	if path == "" {
		path = Redacted(url)
		db, err = openPostgres(ctx, url, log)
	} else {
		db, err = openSQLite(ctx, path, log)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, withoutSecrets(err, url))
	}
	has, err := db.Schema(ctx)
	if err == nil {
		err = checkSchema(has)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, errors.Join(err, db.Close()))
	}
	return db, nil
}

// Table is the list of a table's columns, by which rows are written, read and compared.
type Table[Row any] struct {
	name    string // with the alias that queries use, for example "calls c"
	columns []Column[Row]
}

// NewTable returns a table with this name, which contains the alias that queries use, for
// example "calls c".
func NewTable[Row any](name string, columns ...Column[Row]) Table[Row] {
	return Table[Row]{name, columns}
}

// Column is a column and the field of a row that holds it.
type Column[Row any] struct {
	name  string
	field func(*Row) any // a pointer
	loose bool
}

// Col returns the column with that name; field returns a pointer to the row's field.
func Col[Row any](name string, field func(*Row) any) Column[Row] {
	return Column[Row]{name, field, false}
}

// Loose returns a column in which rows may differ and still count as the same.
func Loose[Row any](name string, field func(*Row) any) Column[Row] {
	return Column[Row]{name, field, true}
}

// Insert returns the statement that adds a row unless there is one with its key.
func (t Table[Row]) Insert() string {
	names, places := make([]string, len(t.columns)), make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i], places[i] = c.name, fmt.Sprintf("$%d", i+1)
	}
	name, _, _ := strings.Cut(t.name, " ")
	return "INSERT INTO " + name + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(places, ", ") + ") ON CONFLICT DO NOTHING"
}

// From returns the query that selects rows of the table; before lists the tables to which
// it is joined.
func (t Table[Row]) From(before ...string) string {
	_, letter, _ := strings.Cut(t.name, " ")
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = letter + "." + c.name
	}
	return "SELECT " + strings.Join(names, ", ") + " FROM " + strings.Join(append(before, t.name), " CROSS JOIN ")
}

// Fields returns pointers to a row's fields in the order of the columns. bind turns them
// into values.
func (t Table[Row]) Fields(r *Row) []any {
	out := make([]any, len(t.columns))
	for i, c := range t.columns {
		out[i] = c.field(r)
	}
	return out
}

// Read reads a row of a query by From.
func (t Table[Row]) Read(row Scan) (r Row, err error) {
	err = row(t.Fields(&r)...)
	return r, err
}

// Same reports whether two rows are equal, apart from loose columns.
func (t Table[Row]) Same(a, b *Row) bool {
	left, right := bind(t.Fields(a)), bind(t.Fields(b))
	for i, c := range t.columns {
		if x, ok := left[i].([]byte); ok {
			if !c.loose && !bytes.Equal(x, right[i].([]byte)) {
				return false
			}
		} else if !c.loose && left[i] != right[i] {
			return false
		}
	}
	return true
}

// Moment is stored as nanoseconds since 1970, 0 for the zero time. It and the types that
// follow have columns of one kind in both databases.
type Moment time.Time

// Flag is 0 or 1.
type Flag bool

// Unsigned is stored as a signed number with the same bits.
type Unsigned uint64

// Optional is stored as empty if it is nil.
type Optional []byte

// Scan implements sql.Scanner.
func (m *Moment) Scan(src any) error {
	n, err := integer(src)
	if *m = (Moment{}); n != 0 {
		*m = Moment(time.Unix(0, n).UTC())
	}
	return err
}

// Value implements driver.Valuer.
func (m Moment) Value() (driver.Value, error) { return Nanos(time.Time(m)), nil }

// Scan implements sql.Scanner.
func (f *Flag) Scan(src any) error {
	n, err := integer(src)
	*f = n != 0
	return err
}

// Value implements driver.Valuer.
func (f Flag) Value() (driver.Value, error) {
	if f {
		return int64(1), nil
	}
	return int64(0), nil
}

// Scan implements sql.Scanner.
func (u *Unsigned) Scan(src any) error {
	n, err := integer(src)
	*u = Unsigned(n)
	return err
}

// Value implements driver.Valuer.
func (u Unsigned) Value() (driver.Value, error) { return int64(u), nil }

// Scan implements sql.Scanner.
func (o *Optional) Scan(src any) error {
	b, ok := src.([]byte)
	if *o = nil; len(b) > 0 {
		*o = bytes.Clone(b)
	}
	if !ok && src != nil {
		return fmt.Errorf("%T is not a column of bytes", src)
	}
	return nil
}

// Value implements driver.Valuer.
func (o Optional) Value() (driver.Value, error) {
	if o == nil {
		return []byte{}, nil
	}
	return []byte(o), nil
}

func integer(src any) (int64, error) {
	n, ok := src.(int64)
	if !ok {
		return 0, fmt.Errorf("%T is not an integer column", src)
	}
	return n, nil
}

// Querier runs statements: a connection pool, or the connection of a
// transaction. Placeholders are $1, $2, … in both dialects.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Tx is a transaction as the operation within it sees it.
type Tx struct {
	Ctx context.Context
	Querier
	// ForUpdate is appended to a SELECT whose rows must not change until the commit. It
	// is empty for SQLite, which has one writer at a time anyway.
	ForUpdate string
	// ForShare is like ForUpdate, but others may also read such rows with ForShare.
	ForShare string
}

// Scan reads the columns of one row into pointers.
type Scan func(dest ...any) error

// Exec returns how many rows the statement changed.
func (t Tx) Exec(query string, args ...any) (int64, error) {
	result, err := t.ExecContext(t.Ctx, query, bind(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// One reads the only row of a query. If there is no row, it returns sql.ErrNoRows.
func One[T any](ctx context.Context, q Querier, read func(Scan) (T, error), query string, args ...any) (T, error) {
	var none T
	all, err := List(ctx, q, read, query, args...)
	if err != nil {
		return none, err
	}
	if len(all) == 0 {
		return none, sql.ErrNoRows
	}
	return all[0], nil
}

// List reads all rows of a query.
func List[T any](ctx context.Context, q Querier, read func(Scan) (T, error), query string, args ...any) (out []T, err error) {
	rows, err := q.QueryContext(ctx, query, bind(args)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		v, err := read(rows.Scan)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// Scalar reads a row of one column.
func Scalar[T any](row Scan) (T, error) {
	var v T
	err := row(&v)
	return v, err
}

// InsertOrFind inserts a row, or finds the row that has its key. insert ends
// with ON CONFLICT DO NOTHING.
func InsertOrFind[T any](t Tx, insert string, args []any, find func() (T, error)) (v T, created bool, err error) {
	n, err := t.Exec(insert, args...)
	if err != nil {
		return v, false, err
	}
	v, err = find()
	return v, n == 1, err
}

// bind converts arguments for both databases: it dereferences pointers and makes text of
// any type valid.
func bind(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) { // the commonest, without reflection
		case *int:
			out[i] = int64(*v)
		case *[]byte:
			out[i] = *v
		case *string:
			out[i] = ValidText(*v)
		case string:
			out[i] = ValidText(v)
		case int:
			out[i] = int64(v)
		default:
			out[i] = reflected(a)
		}
	}
	return out
}

// reflected binds an argument of any type.
func reflected(a any) any {
	v := reflect.ValueOf(a)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if v.IsValid() {
		a = v.Interface()
	}
	if w, ok := a.(driver.Valuer); ok {
		a, _ = w.Value() // only our own types, whose Value never fails
	} else if v.Kind() == reflect.String {
		a = ValidText(v.String())
	}
	return a
}

// ValidText returns s as valid UTF-8 without NUL.
func ValidText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Nanos returns a time as it is stored: nanoseconds since 1970, 0 for the zero time.
func Nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

//go:embed migrations/*.sql
var migrations embed.FS

// ErrUnusable is in the chain of an error that lasts until a person changes something: a
// bad address, a schema of another release, a damaged file. Waiting does not help.
var ErrUnusable = errors.New("this store can't be used")

// schemaNumber returns the number of the schema that this program needs.
func schemaNumber() (int, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil || len(files) != 1 {
		return 0, fmt.Errorf("one file with a schema is wanted, found %d: %w", len(files), err)
	}
	number, err := goose.NumericComponent(files[0])
	return int(number), err
}

// checkSchema refuses a schema that is not this program's. 0 is that of a database without
// tables, which Migrate makes.
func checkSchema(has int) error {
	needs, err := schemaNumber()
	release := "an older"
	switch {
	case err != nil:
		return err
	case has == 0 || has == needs:
		return nil
	case has > needs:
		release = "a newer"
	}
	return fmt.Errorf("%w: it has schema %d, of %s release, and this program needs schema %d: use the program of that release for its runs, "+
		"or another store for new ones (--dir, or in a fleet --store and --blobs)", ErrUnusable, has, release, needs)
}

// foreign is the error for a database with tables but without a schema's number.
func foreign() error {
	return fmt.Errorf("%w: it has tables of another program: give a store its own database", ErrUnusable)
}

// applied reads the number of the schema from the table in which goose keeps it.
const applied = `SELECT COALESCE(MAX(version_id), 0) FROM goose_db_version WHERE is_applied`

// applyMigrations makes the tables if there are none. It returns how many files it
// executed.
func applyMigrations(ctx context.Context, db *sql.DB, dialect goose.Dialect, options ...goose.ProviderOption) (int, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return 0, fmt.Errorf("open migrations: %w", err)
	}
	options = append(options, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	provider, err := goose.NewProvider(dialect, db, files, options...)
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return 0, fmt.Errorf("apply migrations: %w", err)
	}
	return len(results), nil
}
