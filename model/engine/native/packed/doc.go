// Package packed keeps the weights of a frozen base in a file, in the form that an engine
// computes with: rounded, padded and packed in panels. Every process that computes with
// the base maps the file. So the machine holds one copy of it for any number of
// processes, and the system may drop pages and read them again when memory is short.
//
// # What may be relied on
//
// Open returns, to the bit, the numbers that its caller would have computed: a file names
// everything that its content depends on, and is used only if its content has the SHA-256
// that was written with it. A file that is damaged, cut off or in another layout is
// replaced. A file gets its name only after all of it is on the disk. A killed process
// leaves a file that nobody reads and that the next writer replaces.
//
// A file is never required. If it can't be made, because the directory can't be written
// to or has too little room, or because the system maps no files, the numbers are only in
// this process's memory.
//
// # What it is not
//
// It removes no files of a base: whoever removes a base removes the files made of it
// (package store/blob). Content is checked when a file is opened. It is not checked again
// when the system drops pages and reads them from the disk later. If the disk fails then,
// the process ends.
package packed
