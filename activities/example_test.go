package activities_test

import (
	"context"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/fulgurite/fulgurite/activities"
)

// An error that a person has to fix is not tried again.
func Example() {
	var coordinator activities.Coordinator
	_, err := coordinator.PrepareRun(context.Background(), activities.PrepareRunInput{Run: "my run"})
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) {
		fmt.Println(failure.Type(), failure.NonRetryable())
	}
	// Output: Invalid true
}
