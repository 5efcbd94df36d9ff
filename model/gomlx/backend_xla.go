//go:build xla

package gomlx

// The XLA backend needs cgo and loads its plugin when it is opened. It never
// downloads one: the package that would do so is not imported.
import _ "github.com/gomlx/go-xla/compute/xla"
