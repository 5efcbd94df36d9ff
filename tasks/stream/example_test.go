package stream_test

import (
	"fmt"

	"github.com/fulgurite/fulgurite/tasks/stream"
)

// Each epoch has every task once, in an order that the seed decides.
func ExampleOrder() {
	fmt.Println(stream.Order(1, 0, 6), stream.Order(1, 1, 6))
	// Output:
	// [2 3 0 1 4 5] [3 5 2 4 0 1]
}
