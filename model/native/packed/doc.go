// Package packed keeps the weights of a frozen base in a file as an engine computes with
// them: rounded, padded and packed in panels. Every process that computes with the base
// maps the file, so that the machine holds one copy of it however many they are, which it
// may drop and read again when memory is short.
//
// # What may be relied on
//
// Open returns the numbers that its caller would have computed, to the bit: a file names
// all that its content depends on, and is used only if its content has the SHA-256 that
// was written with it. A file that is damaged, cut off or of another layout is made anew.
// A file gets its name when all of it is on the disk; a killed process leaves a file that
// nobody reads and that the next writer replaces.
//
// A file is never needed. Where it can't be made, because the directory can't be written
// to, has too little room or the system maps no files, the numbers are in this process's
// memory alone.
//
// # What it is not
//
// It collects nothing: who removes a base removes the files made of it (package
// store/blob). Content is checked when a file is opened; what the disk returns later, for
// pages that the system dropped, is not. A disk that fails then ends the process.
package packed
