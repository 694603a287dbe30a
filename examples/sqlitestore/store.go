package sqlitestore

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/turnpike-dev/turnpike/pkg/state"
)

//go:embed schema.sql
var schema string

// Store keeps runs and turns in a file of SQLite. It is safe for concurrent use, also by several processes
// of one machine. It has many methods because the port has.
type Store struct {
	state.FormatSetting

	db   *sql.DB
	path string
}

var (
	_ state.RunStore = (*Store)(nil)
	_ state.Checker  = (*Store)(nil)
)

// Open opens the file at path, and creates it if it does not exist.
func Open(ctx context.Context, path string) (*Store, error) {
	// A transaction takes the lock for writes when it begins: one that first reads could not get it
	// after another process has written. With synchronous FULL, a commit is on disk.
	settings := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	db, err := sql.Open("sqlite", "file:"+path+"?"+settings.Encode())
	if err != nil {
		return nil, err
	}
	// SQLite writes one transaction at a time: the calls of this process wait here, in turn, rather
	// than for the lock of the file, where the one that asks most often wins.
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w: choose a file in a directory that this user may write", path, err), db.Close())
	}
	return &Store{db: db, path: path}, nil
}

// Close implements io.Closer.
func (s *Store) Close() error { return s.db.Close() }

// Now implements state.RunStore: processes that share a file share a machine, and its clock.
func (*Store) Now(ctx context.Context) (time.Time, error) { return time.Now(), ctx.Err() }

// Ready implements state.RunStore: it writes a row.
func (s *Store) Ready(ctx context.Context) error {
	return s.update(ctx, func(t *tx) error {
		return t.exec(`INSERT INTO heartbeats VALUES ('', ?) ON CONFLICT DO UPDATE SET until = excluded.until`, millis(t.now))
	})
}

// Check implements state.Checker.
func (s *Store) Check(ctx context.Context) []state.Finding {
	f := state.Finding{Name: "sqlite: writes"}
	if err := s.Ready(ctx); err != nil {
		f.Fatal, f.Detail = true, s.path+": "+err.Error()
		f.Remedy = "check that the disk has space, that this user may write the file and its directory, and that no other program keeps the file locked"
		return []state.Finding{f}
	}
	f.OK, f.Detail = true, "the file takes writes"
	return []state.Finding{f}
}

// tx is one transaction, and the time at which it began. It has many methods because each reads or writes
// one table.
type tx struct {
	ctx context.Context //nolint:containedctx // a tx lives as long as one call
	sql *sql.Tx
	now time.Time
}

// update runs change in a transaction, which it commits if change returns nil.
func (s *Store) update(ctx context.Context, change func(*tx) error) error {
	in, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = in.Rollback() }() // has no effect after Commit
	if err := change(&tx{ctx, in, time.Now()}); err != nil {
		return err
	}
	return in.Commit()
}

func (t *tx) exec(query string, args ...any) error {
	_, err := t.sql.ExecContext(t.ctx, query, args...)
	return err
}

// get scans the only row of a query. It reports whether there is one.
func (t *tx) get(query string, args []any, to ...any) (found bool, err error) {
	err = t.sql.QueryRowContext(t.ctx, query, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// each scans the first column of the rows of a query.
func each[T any](t *tx, visit func(T) error, query string, args ...any) error {
	rows, err := t.sql.QueryContext(t.ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v T
		if err := rows.Scan(&v); err != nil {
			return err
		}
		if err := visit(v); err != nil {
			return err
		}
	}
	return rows.Err()
}

// all returns the first column of the rows of a query.
func all[T any](t *tx, query string, args ...any) (list []T, err error) {
	err = each(t, func(v T) error {
		list = append(list, v)
		return nil
	}, query, args...)
	return list, err
}

func millis(t time.Time) int64 { return t.UnixMilli() }
