// Package assign brings what is on record of a step and the credit of a spec
// together: it makes of attempts what package credit computes with, and of a spec the
// plan by which it does.
//
// Training a step and looking at it afterwards go this one way, so that the credit
// laboratory shows what a run was trained on, and what it would have been trained on
// under another spec. The arithmetic is package credit's; what calls did is package
// signals'; nothing here writes.
//
// One may rely on this: equal records and an equal spec give equal numbers to the
// bit. An attempt that can't be given credit is an error that names it and wraps a
// sentinel of package credit or of this one: it is never left out in silence.
package assign
