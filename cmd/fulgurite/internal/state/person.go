package state

import (
	"os"
	"os/user"
)

// Person returns the user who runs this process, as user@host.
func Person() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
