// Package samples lays the attempts at one task out beside each other: each as one dialog
// from its first message to its last reply, and how much of it all of them have in common.
//
// It works on calls that were read already, and on as many as it is given.
package samples
