// Package specs shows the specs of runs: one as text, or several compared key by key. It
// leaves out the values that agents and their servers may get in confidence.
//
// Its functions are pure.
package specs
