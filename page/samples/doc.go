// Package samples compares the attempts at one task: it lays each out as one dialog, from
// its first message to its last reply, and finds how many lines all dialogs begin with.
//
// It reads no store. It works on the calls that its caller has read, which need not be
// all.
package samples
