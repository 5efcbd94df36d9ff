// Package pageserver serves the page of a store for a command: it listens at the address
// that the flags give, admits those whom the flags admit, and connects the page to
// Temporal and to the code that acts on runs.
//
// The page itself is package page. This package decides nothing about runs. It refuses
// flags that would open the page to other machines without tokens.
package pageserver
