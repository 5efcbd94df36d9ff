// Command server runs the Temporal server of package devserver in a separate process.
// Tests that are built with the race detector start it (make race). With the detector,
// the server would take longer to build and to run than all of our code, and it is not
// ours to check.
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
