// Package pageserver serves the page of a store for a command: it listens where the flags
// say, lets in whom they say, and connects the page to Temporal and to what acts on runs.
//
// It is not the page, which is package page, and decides nothing about runs. It
// opens nothing to other machines without tokens: it refuses flags that would.
package pageserver
