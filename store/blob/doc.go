// Package blob keeps content under the name of its SHA-256, in a directory:
// weights, optimizer moments, batches, snapshots of tasks, archived histories.
//
// A digest is "sha256:<64 hex digits>". Its file is <directory>/<first two
// digits>/<64 digits>, plain content without a header, so that any tool can
// read and check it.
//
// Guarantees: content that Put has stored survives kill -9 and loss of power (it is
// synced before the file has its name, and then the directory); a name never holds part
// of its content, even while it is written; Get never returns bytes that do not match the
// digest, and a stream of Open ends with an error if they did not; any number of
// processes may put the same content at once. A damaged file is replaced by the next Put
// of its content, or by a person who puts a copy back under its name. A full disk is
// ErrFull and changes nothing.
//
// Beside a content there may be files derived from it that can be made again, named <64
// digits>.<name>: they are removed with it, and nothing in this package reads them.
//
// It is not a cache: it deletes only content named to Remove, and the remains of
// interrupted writes. The directory must be on a file system with hard links.
package blob
