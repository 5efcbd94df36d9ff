// Package blob keeps content in a directory, under the name of its SHA-256: weights,
// optimizer moments, batches, snapshots of tasks, archived histories.
//
// A digest is "sha256:<64 hex digits>". Its file is <directory>/<first two digits>/<64
// digits>. The file is the plain content without a header, so that any tool can read and
// check it.
//
// Guarantees:
//
//   - Content that Put has stored survives kill -9 and loss of power: the file is synced
//     before it gets its name, and its directory afterwards.
//   - A named file is always complete, even while content is being written.
//   - Get never returns bytes that do not match the digest. The stream that Open returns
//     ends with an error if they do not match.
//   - Any number of processes may put the same content at the same time.
//   - A damaged file is replaced by the next Put of its content. A person may also put a
//     copy back under its name.
//   - A full disk returns ErrFull and changes nothing.
//
// Next to a content there may be files, named <64 digits>.<name>, that are derived from
// it and can be made again. They are removed with it, and this package never reads them.
//
// The package is not a cache: it deletes only content that Remove names, and the remains
// of interrupted writes. The directory must be on a file system with hard links.
package blob
