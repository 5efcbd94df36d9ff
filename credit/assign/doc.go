// Package assign computes the credit of the attempts of a step. From records it makes the
// trajectories that package credit computes with, and from a spec it makes the plan.
//
// Both the training of a step and the later comparison of settings (package compare) use
// it. So a comparison shows what a run was trained on, and what it would have been
// trained on under another spec. The arithmetic is in package credit; package signals
// reads what single calls did. Nothing in this package writes.
//
// Equal records and an equal spec give equal numbers to the bit. An attempt that can't be
// given credit is an error that names the attempt and wraps a sentinel of package credit
// or of this package. It is never silently left out.
package assign
