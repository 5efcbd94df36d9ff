// Command server is the Temporal server of package devserver in a process of its
// own. The race detector's build of tests starts it (make race): the server would take
// longer to build and to run there than everything of ours, and is not ours to check.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/fulgurite/fulgurite/internal/devserver"
)

func main() {
	if err := devserver.Serve(context.Background(), []byte(os.Args[1]), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
