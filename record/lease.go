package record

import (
	"errors"
	"time"
)

// Role is the service that a process of a fleet provides.
type Role string

// The roles that others look for.
const (
	Gateway Role = "gateway" // one at a time
	Sampler Role = "sampler" // any number
)

// ErrLeaseLost is wrapped when a lease no longer belongs to its holder, because another
// process took the name or the role.
var ErrLeaseLost = errors.New("lease lost")

// Lease says that a process serves a role at a URL, until Expires unless it is
// renewed. The lease with the greater Epoch was taken later; epochs
// of a role are never used twice. Key: Role, Name.
type Lease struct {
	Role    Role      `json:"role"`
	Name    string    `json:"name"`
	URL     string    `json:"url"`
	Epoch   int64     `json:"epoch"`
	Expires time.Time `json:"expires"` // by the database's clock
}
