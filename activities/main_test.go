package activities_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the grader, the agents and the shim of its tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "play" {
		play(os.Args[2:])
		syscall.Exit(0)
	}
	if len(os.Args) == 3 && os.Args[1] == "refuse" {
		_ = grade(os.Args[2])
		fmt.Fprintln(os.Stderr, "I can't")
		os.Exit(1)
	}
	if len(os.Args) == 3 && os.Args[1] == "grade" {
		if err := grade(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// grade gives another reward each time: how often it was asked, which is the length of
// the file at path.
func grade(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("."); err != nil {
		return err
	}
	asked, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Println(asked.Size())
	return f.Close()
}
