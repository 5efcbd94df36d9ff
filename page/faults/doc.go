// Package faults puts together what one fault did: the attempts that were cut off at the same
// time, for the same reason, in one run.
//
// It is a guess by time and words, since nothing on record says which process an attempt died
// with. A fault that cut no attempt off leaves nothing on record, and is not here.
package faults
