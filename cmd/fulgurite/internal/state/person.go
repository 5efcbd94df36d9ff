package state

import (
	"os"
	"os/user"
	"strconv"
)

// Person returns the user who runs this process, as user@host. A user without a name is
// given by the user id.
func Person() string {
	name, host := strconv.Itoa(os.Getuid()), "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
