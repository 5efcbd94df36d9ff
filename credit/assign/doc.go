// Package assign gives the attempts of a step their credit. It makes the trajectories
// that package credit computes with from records, and the plan from a spec.
//
// Training a step and comparing settings afterwards (package compare) both use it, so
// that a comparison shows what a run was trained on, and what it would have been
// trained on under another spec. The arithmetic is package credit's; package signals
// reads what calls did; nothing here writes.
//
// Equal records and an equal spec give equal numbers to the bit. An attempt that can't be
// given credit is an error that names it and wraps a sentinel of package credit or of
// this one: it is never silently left out.
package assign
