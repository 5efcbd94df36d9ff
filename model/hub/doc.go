// Package hub downloads files of a model from the Hugging Face hub, or from a server of
// its shape.
//
// It keeps no cache and knows nothing of what the files hold; package convert makes a
// model of them. It asks the hub's API for the commit of a revision, and for the size and
// digest of each file, and takes the files of that commit.
//
// Guarantees: a file that was cut off goes on where it ended, within a download and in
// the next one; a file has its name only once its digest is right; the token goes to the
// hub alone, not to the host that the hub redirects to.
package hub
