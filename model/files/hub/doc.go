// Package hub downloads files of a model from the Hugging Face hub, or from a server with
// the same interface.
//
// It keeps no cache and does not know what the files contain; package convert makes a
// model from them. It asks the hub's API for the commit of a revision and for the size
// and digest of each file, and downloads the files of that commit.
//
// Guarantees: an interrupted download of a file continues where it stopped, both within
// one download and in the next one. A file gets its name only after its digest was
// checked. The token is sent only to the hub, not to the host to which the hub redirects.
package hub
