package store

import (
	"context"
	"fmt"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

// forgetLease is how long after its end the row of a lease may be deleted.
const forgetLease = time.Hour

// In these statements, %s is replaced by the database's clock, in nanoseconds.
const (
	lastEpoch   = `SELECT COALESCE(MAX(epoch), 0) FROM leases WHERE role = $1`
	endOthers   = `UPDATE leases SET expires = 0 WHERE role = $1 AND name <> $2`
	sweepLeases = `DELETE FROM leases WHERE role = $1 AND epoch < $2 AND expires < %s - $3`
	takeLease   = `INSERT INTO leases (role, name, url, epoch, expires) VALUES ($1, $2, $3, $4, %s + $5)
ON CONFLICT (role, name) DO UPDATE SET url = excluded.url, epoch = excluded.epoch, expires = excluded.expires`
	// In this statement, the clock stands twice.
	takeFreeLease = `INSERT INTO leases (role, name, url, epoch, expires) VALUES ($1, $2, $3, $4, %[1]s + $5)
ON CONFLICT (role, name) DO UPDATE SET url = excluded.url, epoch = excluded.epoch, expires = excluded.expires WHERE leases.expires <= %[1]s`
	// An expired lease may be renewed as long as its place was not taken: its holder was
	// away, or the database was. A lease that was ended has expires = 0.
	renewLease  = `UPDATE leases SET expires = %s + $4 WHERE role = $1 AND name = $2 AND epoch = $3 AND expires > 0`
	endLease    = `UPDATE leases SET expires = 0 WHERE role = $1 AND name = $2 AND epoch = $3`
	selectLease = `SELECT role, name, url, epoch, expires FROM leases WHERE role = $1 AND name = $2`
	liveLeases  = `SELECT role, name, url, epoch, expires FROM leases WHERE role = $1 AND expires > %s ORDER BY epoch DESC`
)

// AcquireLease gives the role to l.Name at l.URL for ttl, with a new epoch, even if
// another process held it under that name. If alone is true, all other holders of the
// role lose their leases. The returned lease has Epoch and Expires set.
func (s *Store) AcquireLease(ctx context.Context, l record.Lease, ttl time.Duration, alone bool) (record.Lease, error) {
	return s.takeLease(ctx, l, ttl, takeLease, alone)
}

// AcquireFreeLease is like AcquireLease, but returns record.ErrLeaseHeld if the lease of the
// role under that name is not over.
func (s *Store) AcquireFreeLease(ctx context.Context, l record.Lease, ttl time.Duration) (record.Lease, error) {
	return s.takeLease(ctx, l, ttl, takeFreeLease, false)
}

func (s *Store) takeLease(ctx context.Context, l record.Lease, ttl time.Duration, statement string, alone bool) (record.Lease, error) {
	var taken record.Lease
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		if err := lockLeases(t); err != nil {
			return err
		}
		epoch, err := database.One(t.Ctx, t, database.Scalar[int64], lastEpoch, l.Role)
		if err != nil {
			return err
		}
		if _, err := t.Exec(s.timed(sweepLeases), l.Role, epoch, int64(forgetLease)); err != nil {
			return err
		}
		if alone {
			if _, err := t.Exec(endOthers, l.Role, l.Name); err != nil {
				return err
			}
		}
		n, err := t.Exec(s.timed(statement), l.Role, l.Name, l.URL, epoch+1, int64(ttl))
		if err == nil && n == 0 {
			err = record.ErrLeaseHeld
		}
		if err != nil {
			return err
		}
		taken, err = database.One(t.Ctx, t, readLease, selectLease, l.Role, l.Name)
		return err
	})
	if err != nil {
		return record.Lease{}, fmt.Errorf("acquire lease of %s %s: %w", l.Role, l.Name, err)
	}
	return taken, nil
}

// RenewLease extends l to ttl from now. It returns record.ErrLeaseLost if another process
// took the name or, with alone, the role.
func (s *Store) RenewLease(ctx context.Context, l record.Lease, ttl time.Duration) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		n, err := t.Exec(s.timed(renewLease), l.Role, l.Name, l.Epoch, int64(ttl))
		if err == nil && n == 0 {
			err = record.ErrLeaseLost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("renew lease of %s %s: %w", l.Role, l.Name, err)
	}
	return nil
}

// ReleaseLease ends l now. It is no error if l is already lost.
func (s *Store) ReleaseLease(ctx context.Context, l record.Lease) error {
	err := s.db.Write(ctx, database.SurvivesKill, func(t database.Tx) error {
		_, err := t.Exec(endLease, l.Role, l.Name, l.Epoch)
		return err
	})
	if err != nil {
		return fmt.Errorf("release lease of %s %s: %w", l.Role, l.Name, err)
	}
	return nil
}

// Leases returns the leases of a role that are not over, the latest first. It is no error
// if there are none.
func (s *Store) Leases(ctx context.Context, role record.Role) ([]record.Lease, error) {
	all, err := database.List(ctx, s.db.Read(), readLease, s.timed(liveLeases), role)
	if err != nil {
		return nil, fmt.Errorf("list leases of %s: %w", role, err)
	}
	return all, nil
}

// timed puts the database's clock into a statement. Every process judges leases
// by it, so that their own clocks need not agree.
func (s *Store) timed(statement string) string { return fmt.Sprintf(statement, s.db.Clock()) }

// lockLeases lets one transaction at a time take a lease. SQLite has one writer
// at a time anyway.
func lockLeases(t database.Tx) error {
	if t.ForUpdate == "" {
		return nil
	}
	_, err := t.Exec(`LOCK TABLE leases IN SHARE ROW EXCLUSIVE MODE`)
	return err
}

func readLease(row database.Scan) (l record.Lease, err error) {
	err = row(&l.Role, &l.Name, &l.URL, &l.Epoch, at(&l.Expires))
	return l, err
}
