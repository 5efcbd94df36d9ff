// Package specs shows the specs of runs: one as text, several key by key. What agents and
// their servers may be given in confidence is left out.
//
// Its functions are pure.
package specs
