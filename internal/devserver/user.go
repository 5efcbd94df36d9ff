//go:build !serverprocess

package devserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// nameUser lets os/user answer who runs this process. The server asks that when it starts,
// and can't start without an answer. For a user id without an entry in /etc/passwd, as
// containers have it, os/user knows only USER and HOME. They are set for the question
// alone, because os/user keeps its answer and programs of users are not to see them.
func nameUser() (err error) {
	for name, value := range map[string]string{"USER": strconv.Itoa(os.Getuid()), "HOME": "/"} {
		before, set := os.LookupEnv(name)
		if before != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("name the user: %w", err)
		}
		defer func() {
			if set {
				err = errors.Join(err, os.Setenv(name, before))
			} else {
				err = errors.Join(err, os.Unsetenv(name))
			}
		}()
	}
	if _, err := user.Current(); err != nil {
		return fmt.Errorf("the user id %d has no entry in /etc/passwd: set USER and HOME (%w)", os.Getuid(), err)
	}
	return nil
}
