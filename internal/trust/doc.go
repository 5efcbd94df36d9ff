// Package trust has what the processes of a fleet need in order to trust each other: a key
// that all of them know, certificates for the addresses that they serve, and the
// certificates of the authorities that they accept.
//
// A [Certificate] is read from files and read again when the files change, so that it can be
// renewed without a restart. [Peers] says how a process asks the others: with which key, and
// which certificates it accepts. [RequireKey] admits requests with a key, and compares keys
// in constant time.
//
// It is no access control for people, which is page/access, and it knows nothing of the keys
// of attempts, which the store keeps. Clients present no certificates.
package trust
